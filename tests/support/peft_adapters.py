"""Adapters that peft saves of tiny transformers models, with random weights, and the models before and after merging."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")


class SavedAdapter(NamedTuple):
    """A folder with an adapter, one with its base model, and the merged weights by name."""

    folder: Path
    base: Path
    merged: dict[str, Any]


def llama(**changes: Any) -> Any:
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**{**sizes, "vocab_size": 50, **changes})
    )


def gpt2() -> Any:
    sizes = {
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "vocab_size": 50,
        "n_positions": 32,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))


def qwen3_moe() -> Any:
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 40,
        "moe_intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    more = {
        "num_key_value_heads": 2,
        "head_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 50,
    }
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**sizes, **more))


def mixtral() -> Any:
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    more = {"num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 50}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **more))


def gpt_oss() -> Any:
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    more = {"head_dim": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 50}
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(**sizes, **more))


def tiny(family: str) -> Callable[[], Any]:
    """Return what makes the first tiny model of a family."""
    configs = json.loads((Path(__file__).parents[1] / "tiny" / f"{family}.json").read_text())
    config = next(iter(configs.values()))
    return lambda: transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config)
    )


def lora(**options: Any) -> Callable[[], Any]:
    return lambda: peft.LoraConfig(**{"r": 4, "lora_alpha": 6, **options})


EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "LoRA": (llama, lora(target_modules=["q_proj", "v_proj"])),
    "all linear layers, rsLoRA": (llama, lora(target_modules="all-linear", use_rslora=True)),
    "regular expression": (llama, lora(target_modules=r".*\.[12]\.mlp\.(up|down)_proj")),
    "layers and exclusions": (
        llama,
        lora(
            target_modules=["q_proj", "o_proj"],
            layers_to_transform=[0, 2],
            exclude_modules=r".*0.*o_proj",
        ),
    ),
    "rank and alpha patterns": (
        llama,
        lora(
            target_modules=["q_proj", "k_proj"],
            rank_pattern={"k_proj": 2, "^model.layers.1.*q_proj": 6},
            alpha_pattern={"1.self_attn.q_proj": 3},
        ),
    ),
    "DoRA": (llama, lora(target_modules=["q_proj", "down_proj"], use_dora=True)),
    "biases of B": (
        lambda: llama(attention_bias=True),
        lora(target_modules=["k_proj"], lora_bias=True),
    ),
    "trained biases": (
        lambda: llama(attention_bias=True),
        lora(target_modules=["k_proj"], bias="all"),
    ),
    "saved modules": (
        llama,
        lora(target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens"]),
    ),
    "embedding": (llama, lora(target_modules=["embed_tokens", "lm_head"])),
    "rows of the embedding": (
        llama,
        lora(target_modules=["q_proj"], trainable_token_indices=[3, 7]),
    ),
    **{
        f"shared experts of {x}": (tiny(x), lora(target_modules=r".*(q_proj|shared.*down_proj)"))
        for x in ("laguna", "hy_v3")
    },
    "transposed layers": (gpt2, lora(target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
    "experts": (
        qwen3_moe,
        lora(target_modules=[], target_parameters=EXPERTS, rank_pattern={"experts.down_proj": 3}),
    ),
    "one parameter of experts": (
        qwen3_moe,
        lora(target_modules=["q_proj"], target_parameters=EXPERTS[1:]),
    ),
    "transposed experts": (gpt_oss, lora(target_modules=[], target_parameters=EXPERTS)),
    "experts and router by their old names": (qwen3_moe, lora(target_modules="all-linear")),
    "old names of Mixtral": (mixtral, lora(target_modules=["q_proj", "gate", "w1", "w2", "w3"])),
    "router": (qwen3_moe, lora(target_modules=[], target_parameters=["mlp.gate.weight"])),
    "IA³": (
        llama,
        lambda: peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
        ),
    ),
    "IA³ of transposed layers": (
        gpt2,
        lambda: peft.IA3Config(
            target_modules=["c_attn", "mlp.c_proj"],
            feedforward_modules=["mlp.c_proj"],
            fan_in_fan_out=True,
        ),
    ),
    "trainable tokens": (
        llama,
        lambda: peft.TrainableTokensConfig(token_indices=[1, 2], target_modules=["embed_tokens"]),
    ),
}
"""Adapters that can be merged: the model and peft's configuration."""


def save_adapter(case: str, folder: Path) -> SavedAdapter:
    """Save a base model, an adapter of it with random weights, and return them with the merged weights."""
    make_model, make_config = CASES[case]
    base, adapter = folder / "base", folder / "adapter"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = make_model().float()
        model.save_pretrained(base)
        wrapped = peft.get_peft_model(model, make_config())
        with torch.no_grad():
            for x in wrapped.parameters():
                if x.requires_grad:
                    x.add_(torch.randn_like(x) * 0.1)
        wrapped.save_pretrained(adapter)
        merged = wrapped.merge_and_unload().state_dict()
    return SavedAdapter(adapter, base, {name: x.detach().clone() for name, x in merged.items()})
