"""Active parameters against those that publishers state (docs/decisions/0047-active-parameters.md)."""

from __future__ import annotations

from typing import Any

import pytest

import llamath

QWEN4_EXP: dict[str, Any] = {
    "model_type": "qwen4_exp_text", "attention_bias": False, "eos_token_id": 248044, "full_attention_interval": 4, "hc_count": 4,
    "hc_lowrank": 320, "head_dim": 256, "heads_per_ngram": 8, "hidden_act": "silu", "hidden_size": 2560, "indexer_budget": 2048,
    "indexer_compress_ratio": 4, "indexer_head_dim": 128, "indexer_kv_heads": 1, "indexer_n_heads": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "indexed_attention"] * 12, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_value_head_dim": 128,
    "make_ngram_vocab_size_divisible_by": 128, "max_position_embeddings": 262144, "moe_intermediate_size": 640, "ngram_size": 3,
    "ngram_vocab_size_base": 20_000_000, "num_attention_heads": 24, "num_experts": 512, "num_experts_per_tok": 10,
    "num_hidden_layers": 48, "num_key_value_heads": 2, "output_gate_type": "sigmoid", "partial_rotary_factor": 0.25,
    "ple_conv_kernel_size": 4, "ple_embed_dim": 2560, "ple_layer_ids": [2], "rms_norm_eps": 1e-06,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10_000_000, "rope_type": "default"},
    "shared_expert_intermediate_size": 640, "split_ngram_parts": 128, "tie_word_embeddings": False, "vocab_size": 248320,
}  # fmt: skip
"""Qwen3.8-Flash-Next: 125B, of which 6B are active, and 51B of n-grams."""
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 262144, "head_dim": 256, "num_attention_heads": 8, "global_head_dim": 512,
    "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "sliding_window": 512, "rms_norm_eps": 1e-06,
    "final_logit_softcapping": 30.0, "attention_k_eq_v": False, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072, "enable_moe_block": False,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
    },
}  # fmt: skip
E2B: dict[str, Any] = {
    "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35, "num_key_value_heads": 1, "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True, "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
}  # fmt: skip
E4B: dict[str, Any] = {
    "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42, "num_key_value_heads": 2, "num_kv_shared_layers": 18,
    "use_double_wide_mlp": False, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7,
}  # fmt: skip


def billions(n: int, digits: int = 1) -> float:
    return round(n / 1e9, digits)


@pytest.mark.parametrize(
    ("preset", "active"),
    [
        ("mixtral-8x7b", 12.9),
        ("qwen3-30b-a3b", 3.4),
        ("qwen3-235b-a22b", 22.2),
        ("gemma-4-26b-a4b", 3.8),
    ],
)
def test_token_embedding_counts_whole(preset: str, active: float) -> None:
    assert billions(llamath.load(preset).parameters.active) == active


@pytest.mark.parametrize(
    ("preset", "active"), [("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13), ("deepseek-v3", 36.63)]
)
def test_publishers_without_it_are_that_much_lower(preset: str, active: float) -> None:
    model = llamath.load(preset)
    assert billions(model.parameters.active - int(model.tree.embed.weight.size), 2) == active


@pytest.mark.parametrize(
    ("preset", "key", "published"),
    [
        ("gpt-oss-120b", "active_without_embeddings", 5.1),
        ("qwen3.5-35b-a3b", "active_without_embeddings", 3),
        ("glm-4.5", "active_blocks", 32),
        ("glm-4.5-air", "active_blocks", 12),
        ("minimax-m2", "active_blocks", 10),
        ("step-3.5-flash", "active_blocks", 11),
    ],
)
def test_counts_without_embeddings_and_head_are_published(
    preset: str, key: str, published: float
) -> None:
    """GLM-4.5-355B-A32B, GLM-4.5-Air-106B-A12B, MiniMax-M2 230B-A10B, Step-3.5-Flash 196B-A11B."""
    found = llamath.count(preset).to_json()["parameters"][key]
    digits = 1 if isinstance(published, float) else 0
    assert billions(found, digits) == published
    facts = llamath.facts(preset).to_json()
    assert facts[key] == found < facts["active"]


def test_tied_embedding_is_the_head_without_both() -> None:
    p = llamath.load("ernie-4.5-21b-a3b").parameters
    assert p.active_blocks == p.active_without_embeddings == p.active - 103_424 * 2560


def test_tables_of_ngrams_count_by_the_rows_read() -> None:
    """The publisher counts neither the token embedding nor the head."""
    model = llamath.load(QWEN4_EXP)
    p, table = (
        model.parameters,
        sum(int(x.weight.size) for x in model.weights if ".table." in x.pattern),
    )
    assert (billions(p.total), billions(table)) == (176.9, 51.2)
    assert int((p.total - table) / 1e9) == 125 and billions(p.active - 2 * 248_320 * 2560, 0) == 6
    without = llamath.load({**QWEN4_EXP, "ple_layer_ids": []}).parameters
    assert p.active - without.active == p.total - table - without.total + 16 * 160


@pytest.mark.parametrize("size", [E2B, E4B])
def test_per_layer_embeddings_count_by_their_row(size: dict[str, Any]) -> None:
    p = llamath.load({**GEMMA4, **size}).parameters
    rows = 262_144 * 256 * size["num_hidden_layers"]
    assert p.total - p.active == rows - rows // 262_144
    if size is E2B:
        assert billions(p.active) == 2.3


def test_dense_models_are_active_as_a_whole() -> None:
    for preset in ("gpt2", "llama-3.2-1b"):
        p = llamath.load(preset).parameters
        assert p.active == p.total
