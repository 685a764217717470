"""Models without a class of their own in transformers match a related class, or a wrapper that contains them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch

import llamath
from llamath.torch import build, load_weights
from support.reference_data import TINY
from support.transformers_pair import Pair, logits, logits_match, pair

pytestmark = pytest.mark.transformers
BASE = {
    "vocab_size": 99,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
}
SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
DYNAMIC = {
    "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    "rope_theta": 1e6,
    "max_position_embeddings": 64,
}
GRANITE = {
    "embedding_multiplier": 12,
    "attention_multiplier": 8**-0.5,
    "residual_multiplier": 1.4 / 2**0.5,
    "logits_scaling": 3.0,
}
RELATIVES: dict[str, dict[str, Any]] = {
    "internlm-unbiased-origin": BASE | {"model_type": "llama", "rope_theta": 20000.0},
    "internlm-llama-keys": BASE | DYNAMIC | {"model_type": "llama", "num_key_value_heads": 2},
    "internlm2-plain": BASE | DYNAMIC | {"model_type": "llama", "num_key_value_heads": 2, "rms_norm_eps": 1e-5},
    "internlm2-tied": BASE | {"model_type": "llama", "num_key_value_heads": 3, "tie_word_embeddings": True},
    "minicpm-plain": BASE | GRANITE | {"model_type": "granite", "tie_word_embeddings": True, "rms_norm_eps": 1e-5},
    "minicpm-moe": BASE | GRANITE | {"model_type": "granitemoe", "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2, "tie_word_embeddings": True},
    "orion-plain": BASE | {"model_type": "stablelm", "partial_rotary_factor": 1.0, "num_key_value_heads": 6},
    "orion-grouped-tied": BASE | {"model_type": "stablelm", "partial_rotary_factor": 1.0, "num_key_value_heads": 2, "tie_word_embeddings": True, "layer_norm_eps": 1e-6},
    "qwen-short": BASE | {"model_type": "qwen2", "intermediate_size": 28, "num_key_value_heads": 6, "rope_theta": 1e6},
    "phi-msft": SMALL | {"model_type": "phi", "intermediate_size": 128, "partial_rotary_factor": 0.5},
    "mixformer-first": SMALL | {"model_type": "phi", "vocab_size": 128, "num_hidden_layers": 3, "intermediate_size": 128, "partial_rotary_factor": 0.5},
    "stablelm-epoch": SMALL | {"model_type": "stablelm", "num_key_value_heads": 4, "use_qkv_bias": True},
    "falcon-RefinedWebModel 7B": {"model_type": "falcon", "vocab_size": 99, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "new_decoder_architecture": False},
    "falcon-RefinedWeb 40B": {"model_type": "falcon", "vocab_size": 99, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_kv_heads": 2, "new_decoder_architecture": True},
    "exaone-plain": BASE | {"model_type": "llama", "num_key_value_heads": 2, "rope_theta": 5e5, "rms_norm_eps": 1e-5},
    "exaone-tied, stretched": BASE | {"model_type": "llama", "num_key_value_heads": 3, "head_dim": 10, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "max_position_embeddings": 256, "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32, "rope_type": "llama3"}},
    "baichuan-7B": BASE | {"model_type": "llama"},
    "chatglm-plain": BASE | {"model_type": "glm", "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5, "pad_token_id": 0, "eos_token_id": 0},
    "chatglm-stretched": BASE | {"model_type": "glm", "num_key_value_heads": 2, "head_dim": 12, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "pad_token_id": 0, "eos_token_id": 0},
    "mimo-plain": BASE | {"model_type": "qwen2", "num_key_value_heads": 2, "rope_theta": 640000.0, "rms_norm_eps": 1e-5},
    "openelm-even": BASE | {"model_type": "qwen3", "intermediate_size": 48, "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6, "tie_word_embeddings": True},
    "bailing_moe-first": SMALL | {"model_type": "granitemoeshared", "intermediate_size": 20, "shared_intermediate_size": 40, "num_local_experts": 5, "num_experts_per_tok": 2, "num_key_value_heads": 2, "rope_theta": 6e5, "embedding_multiplier": 1.0, "attention_multiplier": 8**-0.5, "residual_multiplier": 1.0, "logits_scaling": 1.0},
    "bailing_moe-second": SMALL | {"model_type": "glm4_moe", "moe_intermediate_size": 20, "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 12, "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "use_qk_norm": True, "partial_rotary_factor": 0.5, "rope_theta": 6e5, "rms_norm_eps": 1e-6, "routed_scaling_factor": 2.5},
    "sarvam_moe-plain": SMALL | {"model_type": "glm4_moe", "moe_intermediate_size": 20, "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 12, "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "use_qk_norm": True, "partial_rotary_factor": 1.0, "rope_theta": 8e6, "rms_norm_eps": 1e-6, "routed_scaling_factor": 2.5},
    "sarvam_mla-plain": BASE | {"model_type": "deepseek_v3", "num_key_value_heads": 6, "moe_intermediate_size": 20, "num_hidden_layers": 3, "q_lora_rank": None, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "first_k_dense_replace": 1, "n_routed_experts": 32, "num_experts_per_tok": 3, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16}},
    "minimax-MiniMax's keys": SMALL | {"model_type": "minimax", "intermediate_size": 20, "num_hidden_layers": 4, "num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2, "layer_types": [*["linear_attention"] * 3, "full_attention"], "full_attn_alpha_factor": 3.5, "full_attn_beta_factor": 1.25, "linear_attn_alpha_factor": 2.5, "linear_attn_beta_factor": 0.75, "mlp_alpha_factor": 3.0, "mlp_beta_factor": 1.5, "rope_theta": 1e7},
    "nemotron_nas-even": BASE | {"model_type": "llama", "intermediate_size": 256, "num_key_value_heads": 2, "rope_theta": 5e5, "rms_norm_eps": 1e-5},
}  # fmt: skip
EYES = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}
QWEN_EYES = {
    "depth": 1,
    "embed_dim": 32,
    "hidden_size": 32,
    "num_heads": 4,
    "out_hidden_size": 32,
    "mlp_ratio": 1,
}

EYES_OF = {"qwen3_vl_moe": {"deepstack_visual_indexes": [0]}}


def unproven(name: str) -> dict[str, Any]:
    family, _, label = name.partition("-")
    return dict(json.loads((TINY.with_name("tiny_unproven") / f"{family}.json").read_text())[label])


def same_logits(both: Pair) -> bool:
    """Whether both models compute the same in one pass."""
    ids = both.ids(40)
    return logits_match(both.ours(ids), logits(both.theirs, ids), both, ids)


def same_with_cache_and_padding(both: Pair) -> bool:
    """Whether our model computes the same in several passes, and with padding before a row."""
    ids, cache, pads = both.ids(40), both.ours.new_cache(40), torch.tensor([0, 5])
    cached = torch.cat(
        [both.ours(ids[:, a:b], cache) for a, b in itertools.pairwise((0, 11, 13, *range(14, 41)))],
        1,
    )
    alone = logits(both.theirs, ids[1:, 5:])
    padded = both.ours(ids, None, pads)[1:, 5:]
    return logits_match(cached, both.ours(ids), both, ids) and logits_match(
        padded, alone, both, ids
    )


@pytest.mark.parametrize("name", RELATIVES)
@torch.no_grad()
def test_related_class_computes_the_same(name: str) -> None:
    both = pair(RELATIVES[name])
    ours = build(llamath.load(unproven(name)))
    load_weights(ours, both.ours.state_dict().items())
    ids = both.ids(40)
    logits(both.theirs, ids[:, :9])
    assert logits_match(ours(ids), logits(both.theirs, ids), both, ids)


@pytest.mark.parametrize("label", ["plain", "without a latent query, biased, tied, one dense"])
@torch.no_grad()
def test_mistral4(label: str) -> None:
    both = pair(unproven(f"mistral4-{label}"))
    assert same_logits(both)


@pytest.mark.parametrize("label", ["plain", "biased, tied"])
@torch.no_grad()
def test_muse_glimmer_in_a_wrapper(label: str) -> None:
    text = unproven(f"muse_glimmer-{label}")
    eyes = EYES | {"rope_parameters": {"rope_type": "axial", "rope_theta": 1e4}}
    outer = {
        "out_hidden_size": 128,
        "projector_hidden_size": 16,
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
    }
    both = pair({"model_type": "muse_glimmer", "text_config": text, "vision_config": eyes} | outer)
    assert same_logits(both)


@pytest.mark.parametrize("outer", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"])
@torch.no_grad()
def test_qwen_text_model_in_a_wrapper(outer: str) -> None:
    text = SMALL | {
        "model_type": f"{outer}_text",
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    text |= {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    }
    text |= {"head_dim": 8} if outer.startswith("qwen3") else {}
    text |= (
        {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
        if outer.endswith("moe")
        else {}
    )
    both = pair(
        {
            "model_type": outer,
            "text_config": text,
            "vision_config": QWEN_EYES | EYES_OF.get(outer, {}),
        }
    )
    assert same_logits(both)


@pytest.mark.parametrize(
    "label", ["plain", "StepFun's keys: windows, heads, clamps, predicted tokens"]
)
@torch.no_grad()
def test_step3p5_in_a_wrapper(label: str) -> None:
    eyes = {
        "width": 32,
        "layers": 1,
        "heads": 4,
        "image_size": 28,
        "mlp_ratio": 1.0,
        "rope_parameters": {"rope_type": "axial", "rope_theta": 1e4},
    }
    tied = {"tie_word_embeddings": unproven(f"step3p5-{label}").get("tie_word_embeddings", False)}
    both = pair(
        {
            "model_type": "step3p7",
            "text_config": unproven(f"step3p5-{label}"),
            "vision_config": eyes,
        }
        | tied
    )
    assert same_logits(both)


@pytest.mark.parametrize("label", ["plain", "MiniMax's keys, tied"])
@torch.no_grad()
def test_minimax_m3_in_a_wrapper(label: str) -> None:
    text = unproven(f"minimax_m3-{label}")
    eyes = EYES | {"image_size": 28, "rope_parameters": {"rope_type": "axial", "rope_theta": 1e4}}
    outer = {
        "projector_hidden_size": 16,
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
    }
    both = pair({"model_type": "minimax_m3_vl", "text_config": text, "vision_config": eyes} | outer)
    assert same_logits(both)
    assert same_with_cache_and_padding(both)


@pytest.mark.parametrize(
    "label", ["plain", "shared indexers, pools of 3, grouped, tied", "Z.ai's keys"]
)
@torch.no_grad()
def test_glm5_next_in_a_wrapper(label: str) -> None:
    text = unproven(f"glm5_next-{label}")
    # the class knows another name of sparse attention, and no number of dense layers
    text["layer_types"] = [
        "indexed_attention" if x == "deepseek_sparse_attention" else x for x in text["layer_types"]
    ]
    text.pop("first_k_dense_replace", None)
    eyes = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 4,
        "out_hidden_size": text["hidden_size"],
    }
    both = pair(
        {"model_type": "glm5_next", "text_config": text, "vision_config": eyes} | tied(text)
    )
    assert same_logits(both)
    assert same_with_cache_and_padding(both)


def tied(text: dict[str, Any]) -> dict[str, bool]:
    """The outer key of a wrapper whose text model has tied embeddings."""
    return {"tie_word_embeddings": text.get("tie_word_embeddings", False)}


@pytest.mark.parametrize("label", ["plain", "Thinking Machines' keys, scaled, padded"])
@torch.no_grad()
def test_inkling_in_a_wrapper(label: str) -> None:
    text = unproven(f"inkling-{label}")
    eyes = {"patch_size": 4, "hidden_size": 16, "num_hidden_layers": 8}
    both = pair(
        {
            "model_type": "inkling_mm_model",
            "text_config": text,
            "vision_config": eyes,
            "audio_config": {"n_mel_bins": 4},
        }
    )
    assert same_logits(both)
    assert same_with_cache_and_padding(both)


@torch.no_grad()
def test_zero_experts_of_longcat() -> (
    None
):  # transformers allocates weights for them, which it never uses
    both = pair(unproven("longcat_flash-zero experts"))
    assert same_logits(both)


@pytest.mark.parametrize(
    "name", ["exaone4", "exaone4_5_text"]
)  # the type in the first release, and that of transformers
@torch.no_grad()
def test_exaone_4_5_text_model_in_a_wrapper(name: str) -> None:
    eyes = {
        "depth": 1,
        "hidden_size": 32,
        "num_heads": 4,
        "num_key_value_heads": 2,
        "out_hidden_size": 32,
        "intermediate_size": 32,
    }
    text = SMALL | {
        "model_type": name,
        "num_key_value_heads": 2,
        "sliding_window": 16,
        "sliding_window_pattern": 2,
    }
    both = pair({"model_type": "exaone4_5", "text_config": text, "vision_config": eyes})
    assert same_logits(both)


@torch.no_grad()
def test_falcon_rounds_alibi_to_bfloat16() -> None:
    twelve = {
        "num_attention_heads": 12,
        "multi_query": False,
        "parallel_attn": False,
    }  # the slopes of twelve heads are no powers of 2
    both = pair(
        {
            "model_type": "falcon",
            "vocab_size": 99,
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "alibi": True,
            "bias": True,
        }
        | twelve
    )
    assert same_logits(both)
