"""Totals of published models without a class in transformers.

Model cards (Baichuan 1), the index of ChatGLM3 6B and the same models under other classes (GLM-4 9B, EXAONE 3.5 32B) state them exactly; the
others are published rounded: 7.8B and 2.4B, 0.27B, 7.83B, 49.9B, 7.5B and 13.9B.
"""

from __future__ import annotations

from typing import Any

import pytest

import llamath
from support.reference_data import truth

EXAONE = {
    "model_type": "exaone", "activation_function": "silu", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336,
    "layer_norm_epsilon": 1e-5, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_layers": 32,
    "rope_theta": 500000, "tie_word_embeddings": False, "vocab_size": 102400,
}  # fmt: skip
BAICHUAN = {
    "model_type": "baichuan", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
    "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "vocab_size": 64000,
}  # fmt: skip
LARGE = {
    "hidden_size": 5120,
    "intermediate_size": 13696,
    "num_attention_heads": 40,
    "num_hidden_layers": 40,
    "model_max_length": 4096,
}
BAICHUAN_13B = {key: x for key, x in BAICHUAN.items() if key != "max_position_embeddings"} | LARGE
CHATGLM = {
    "model_type": "chatglm", "add_bias_linear": False, "add_qkv_bias": True, "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False, "ffn_hidden_size": 13696, "hidden_size": 4096, "kv_channels": 128,
    "layernorm_epsilon": 1e-5, "multi_query_attention": True, "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28,
    "original_rope": True, "padded_vocab_size": 65024, "post_layer_norm": True, "rmsnorm": True, "seq_length": 8192,
    "tie_word_embeddings": False, "vocab_size": 65024,
}  # fmt: skip
OPENELM = {
    "model_type": "openelm", "activation_fn_name": "swish", "ffn_dim_divisor": 256, "ffn_with_glu": True, "head_dim": 64,
    "ffn_multipliers": [0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0],
    "max_context_length": 2048, "model_dim": 1280, "normalization_layer_name": "rms_norm", "normalize_qk_projections": True,
    "num_gqa_groups": 4, "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4, "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4,
    "num_transformer_layers": 16, "qkv_multipliers": [0.5, 1.0], "rope_freq_constant": 10000, "rope_max_length": 4096,
    "share_input_output_layers": True, "vocab_size": 32000,
}  # fmt: skip
MIMO = {
    "model_type": "mimo", "attention_bias": True, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
    "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-5, "rope_theta": 640000, "tie_word_embeddings": False, "use_sliding_window": False,
    "vocab_size": 151680,
}  # fmt: skip
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "EXAONE 3.0 7.8B": (EXAONE, 7_818_448_896),
    "EXAONE 3.5 2.4B": (
        EXAONE
        | {
            "hidden_size": 2560,
            "intermediate_size": 7168,
            "num_layers": 30,
            "head_dim": 80,
            "tie_word_embeddings": True,
        },
        2_405_327_360,
    ),
    "EXAONE 3.5 32B": (  # EXAONE 4.0 32B without the norms of its heads: 64 layers of 2 · 128
        EXAONE
        | {
            "hidden_size": 5120,
            "intermediate_size": 27392,
            "num_layers": 64,
            "num_attention_heads": 40,
        },
        32_003_216_384 - 64 * 256,
    ),
    "Baichuan 7B": (BAICHUAN, 7_000_559_616),
    "Baichuan 13B": (BAICHUAN_13B, 13_264_901_120),
    "Baichuan 2 7B": (BAICHUAN | {"vocab_size": 125696}, 7_505_973_248),
    "Baichuan 2 13B": (BAICHUAN_13B | {"vocab_size": 125696}, 13_896_668_160),
    "ChatGLM3 6B": (
        CHATGLM,
        12_487_168_064 // 2 - 32,
    ),  # bytes in its index, without 32 rotary frequencies
    "GLM-4 9B": (
        CHATGLM | {"num_layers": 40, "padded_vocab_size": 151552, "vocab_size": 151552},
        9_399_951_360,
    ),
    "OpenELM 270M": (OPENELM, 271_527_168),
    "MiMo 7B": (
        MIMO,
        7_833_409_536 - 210_790_400,
    ),  # without the layer for the prediction of further tokens
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_total_equals_published(name: str) -> None:
    config, total = PUBLISHED[name]
    assert llamath.load(config).parameters.total == total


def test_nemotron_nas_49b_total_equals_published() -> None:
    config = next(
        x["config"] for x in truth("configs.jsonl") if x["config"]["model_type"] == "nemotron-nas"
    )
    model = llamath.load(config)
    assert model.parameters.total == 49_867_145_216 and not model.notes


def test_mimo_prediction_layer_has_names_of_its_own() -> None:
    model = llamath.load(MIMO)
    stored = list(model.family.hf.mtp_tensors(model.tree))
    assert {x.name for x in stored} >= {
        "model.mtp_layers.0.input_proj.weight",
        "model.mtp_layers.0.self_attn.q_proj.bias",
    }
    assert not any("embed_tokens" in x.name or "head" in x.name for x in stored)
    assert (
        model.parameters.total + sum(int(part.weight.size) for x in stored for part in x.parts)
        == 7_833_409_536
    )


def test_first_chatglm_and_its_relatives_are_refused() -> None:
    for key, value in (
        ("position_encoding_2d", True),
        ("pre_seq_len", 128),
        ("vision_config", {"depth": 1}),
    ):
        with pytest.raises(llamath.ConfigError, match=key):
            llamath.load(CHATGLM | {key: value})
    with pytest.raises(llamath.ConfigError, match="max_position_embeddings is missing"):
        llamath.load({key: x for key, x in BAICHUAN.items() if key != "max_position_embeddings"})
