"""Models without a class in transformers match modules of its classes, put together as their public code does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

import llamath
from llamath.torch import build, canonical_weights, load_weights
from support.reference_data import TINY
from support.transformers_pair import Pair, logits, logits_match, perturb_weights

pytestmark = pytest.mark.transformers


def tiny(family: str, label: str) -> dict[str, Any]:
    """One of the tiny configurations of a family."""
    return dict(json.loads((TINY.with_name("tiny_unproven") / f"{family}.json").read_text())[label])


def made(config: dict[str, Any]) -> Any:
    """A model of transformers."""
    torch.manual_seed(0)
    hf_config = transformers.AutoConfig.for_model(**config)
    how = {"attn_implementation": "eager", "experts_implementation": "eager"}
    return transformers.AutoModelForCausalLM.from_config(hf_config, **how).eval()


def saved(theirs: Any, folder: Path) -> dict[str, Tensor]:
    """The tensors that transformers saves of a model whose weights are perturbed."""
    perturb_weights(theirs)
    theirs.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


@torch.no_grad()
def same_logits(config: dict[str, Any], theirs: Any, tensors: dict[str, Tensor]) -> bool:
    """Whether our model computes the same from these tensors, in one pass and with a cache."""
    model = llamath.load(config)
    ours = build(model)
    load_weights(ours, canonical_weights(model.tree, model.scheme("hf"), tensors))
    both = Pair(config, theirs, ours, {})
    ids, cache = both.ids(24), ours.new_cache(24)
    wanted = logits(theirs, ids)
    cached = torch.cat([ours(x, cache) for x in ids.split([9, 1, 14], 1)], 1)
    return all(logits_match(x, wanted, both, ids) for x in (ours(ids), cached))


class WithoutPositions(nn.Module):
    """Rotary positions that rotate nothing."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        cos = torch.ones(*x.shape[:2], 12)
        return cos, torch.zeros_like(cos)


def add_output_gate(attn: Any, d: int) -> None:
    """Multiply what the heads return by the sigmoid of a projection of their input."""
    attn.g_proj = nn.Linear(d, attn.o_proj.in_features, bias=False)
    inputs: list[Tensor] = []
    attn.register_forward_pre_hook(
        lambda _, __, kwargs: inputs.append(kwargs["hidden_states"]), with_kwargs=True
    )
    attn.o_proj.register_forward_pre_hook(
        lambda _, args: (args[0] * attn.g_proj(inputs.pop()).sigmoid(),)
    )


def test_solar_open2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solar Open's layers and experts, without positions and with gates; Kimi Linear's delta attention with doubled steps."""
    from transformers.models.kimi_linear import modeling_kimi_linear as kimi

    class Delta(kimi.KimiLinearDeltaAttention):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
            return super().forward(hidden_states), None

    kernel = kimi.chunk_kimi_delta_attention
    monkeypatch.setattr(
        kimi,
        "chunk_kimi_delta_attention",
        lambda *args, beta, **how: kernel(*args, beta=2 * beta, **how),
    )
    config = tiny("solar_open2", "plain")
    linear = config["linear_attn_config"]
    delta = kimi.KimiLinearConfig(
        hidden_size=config["hidden_size"],
        num_hidden_layers=config["num_hidden_layers"],
        linear_num_heads=linear["num_heads"],
        linear_head_dim=linear["head_dim"],
        linear_conv_kernel_dim=linear["short_conv_kernel_size"],
        rms_norm_eps=config["rms_norm_eps"],
    )
    theirs = made({**config, "model_type": "solar_open", "rope_scaling": None})
    theirs.model.rotary_emb = WithoutPositions()
    for i, layer in enumerate(theirs.model.layers):
        if i in config["gqa_layers"]:
            add_output_gate(layer.self_attn, config["hidden_size"])
        else:
            layer.self_attn = Delta(delta, i).eval()
            for x in (layer.self_attn.forget_gate.dt_bias, layer.self_attn.forget_gate.A_log):
                nn.init.normal_(x)  # the module leaves them to its model
    tensors = {}
    for name, x in saved(theirs, tmp_path).items():
        layer, found, _ = name.partition(".conv1d.")
        if found:
            thirds = zip("qkv", x.chunk(3), strict=True)
            tensors |= {f"{layer}.{part}_conv1d.weight": y for part, y in thirds}
        else:
            tensors[name.replace(".forget_gate.", ".")] = x
    assert same_logits(config, theirs, tensors)


def looped(config: dict[str, Any]) -> Any:
    """Llama's model with as many layers as all passes have, those of later passes being the first ones."""
    layers, passes = (
        config["num_hidden_layers"],
        config.get("num_loops", config.get("total_ut_steps")),
    )
    theirs = made(
        {
            **{key: x for key, x in config.items() if key != "layer_types"},
            "model_type": "llama",
            "num_hidden_layers": layers * passes,
            "num_key_value_heads": config.get("num_key_value_heads", config["num_attention_heads"]),
        }
    )
    for i in range(layers, layers * passes):
        own, first = theirs.model.layers[i], theirs.model.layers[i % layers]
        for name, parameter in first.named_parameters():
            owner, _, leaf = name.rpartition(".")
            setattr(own.get_submodule(owner), leaf, parameter)
    if not config.get("skip_loop_final_norm", False):
        for i in range(1, passes):
            theirs.model.layers[i * layers].register_forward_pre_hook(
                lambda _, args: (theirs.model.norm(args[0]), *args[1:])
            )
    return theirs


def once(theirs: Any, layers: int) -> dict[str, Tensor]:
    """The tensors of a looped model, those of later passes left out."""
    perturb_weights(theirs)
    tensors = theirs.state_dict()
    later = tuple(f"model.layers.{i}." for i in range(layers, len(theirs.model.layers)))
    return {name: x.clone() for name, x in tensors.items() if not name.startswith(later)}


@pytest.mark.parametrize(
    "label",
    ["plain", "three passes of one layer", "biased, tied, without norms between passes"],
)
def test_nanbeige(label: str) -> None:
    config = tiny("nanbeige", label)
    theirs = looped(config)
    assert same_logits(config, theirs, once(theirs, config["num_hidden_layers"]))


@pytest.mark.parametrize("label", ["plain", "grouped, tied, twice"])
def test_ouro(label: str) -> None:
    """Llama's modules with a norm after each branch."""
    config = tiny("ouro", label)
    theirs, layers = looped(config), config["num_hidden_layers"]
    new_norm = type(theirs.model.norm)
    for i, layer in enumerate(theirs.model.layers):
        for branch, name in (
            (layer.self_attn, "input_layernorm_2"),
            (layer.mlp, "post_attention_layernorm_2"),
        ):
            first = getattr(theirs.model.layers[i % layers], name, None)
            norm = first or new_norm(config["hidden_size"], config.get("rms_norm_eps", 1e-6))
            setattr(layer, name, norm)
            branch.register_forward_hook(
                lambda _, __, y, norm=norm: (
                    (norm(y[0]), *y[1:]) if isinstance(y, tuple) else norm(y)
                )
            )
    tensors = once(theirs, layers)
    gate = {"weight": torch.randn(1, config["hidden_size"]), "bias": torch.randn(1)}
    exits = {f"model.early_exit_gate.{x}": y for x, y in gate.items()}
    assert same_logits(config, theirs, tensors | exits)
