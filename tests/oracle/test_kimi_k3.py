"""Kimi K3 against what was published: its config, the bytes of its index, and the names and shapes of its tensors."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import llamath
from llamath.checkpoint.naming.scheme import StoredTensor

TOTAL_SIZE, TENSORS = 1_560_860_324_864, 497_220
"""`total_size` of the published index, and its number of tensors."""
TOTAL, ACTIVE = 2.78, 104
"""Parameters of its report, in 10¹², and active ones, in 10⁹."""
FULL = [*range(4, 93, 4), 93]
CONFIG: dict[str, Any] = {
    "model_type": "kimi_k3",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "kimi_linear", "hidden_size": 7168, "intermediate_size": 33792, "num_hidden_layers": 93, "num_attention_heads": 96,
        "num_key_value_heads": 96, "vocab_size": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True, "mla_use_output_gate": True, "attn_res_block_size": 12,
        "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "first_k_dense_replace": 1,
        "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
        "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True, "moe_router_activation_func": "sigmoid", "moe_renormalize": True,
        "max_position_embeddings": 1048576, "rms_norm_eps": 1e-05,
        "linear_attn_config": {
            "full_attn_layers": FULL, "kda_layers": [i for i in range(1, 94) if i not in FULL], "gate_lower_bound": -5.0, "head_dim": 128,
            "num_heads": 96, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
        },
    },
    "vision_config": {
        "attn_bias": False, "linear_bias": False, "patch_embed_proj_bias": False, "norm_type": "rmsnorm", "mlp_type": "mlp2",
        "merge_kernel_size": [2, 2], "mm_hidden_size": 1024, "mm_projector_type": "patchmergerv2", "patch_size": 14,
        "init_pos_emb_height": 64, "init_pos_emb_width": 64, "qkv_hidden_size": 1536, "vt_hidden_size": 1024,
        "vt_intermediate_size": 4096, "vt_num_attention_heads": 12, "vt_num_hidden_layers": 27,
    },
}  # fmt: skip
FLOAT32 = ("A_log", "dt_bias", "_conv1d.weight", "o_norm.weight", "e_score_correction_bias")
PUBLISHED = {
    "language_model.lm_head.weight": (163840, 7168),
    "language_model.model.output_attn_res_proj.weight": (1, 7168),
    "language_model.model.layers.0.mlp.gate_proj.weight": (33792, 7168),
    "language_model.model.layers.0.self_attn.A_log": (128,),
    "language_model.model.layers.0.self_attn.q_conv1d.weight": (12288, 1, 4),
    "language_model.model.layers.0.self_attn.f_a_proj.weight": (128, 7168),
    "language_model.model.layers.0.self_attn.g_proj.weight": (12288, 7168),
    "language_model.model.layers.92.self_attn.g_proj.weight": (12288, 7168),
    "language_model.model.layers.92.self_attn.kv_b_proj.weight": (24576, 512),
    "language_model.model.layers.92.self_attn.q_b_proj.weight": (18432, 1536),
    "language_model.model.layers.1.self_attention_res_proj.weight": (1, 7168),
    "language_model.model.layers.1.mlp_res_norm.weight": (7168,),
    "language_model.model.layers.1.block_sparse_moe.routed_expert_down_proj.weight": (3584, 7168),
    "language_model.model.layers.1.block_sparse_moe.experts.895.w2.weight": (3584, 3072),
    "language_model.model.layers.1.block_sparse_moe.shared_experts.up_proj.weight": (6144, 7168),
    "language_model.model.layers.1.block_sparse_moe.gate.e_score_correction_bias": (896,),
    "mm_projector.proj.0.weight": (4096, 4096),
    "mm_projector.post_norm.weight": (7168,),
    "vision_tower.patch_embed.pos_emb.weight": (64, 64, 1024),
    "vision_tower.encoder.blocks.26.wqkv.weight": (4608, 1024),
    "vision_tower.encoder.blocks.26.wo.weight": (1024, 1536),
}


def stored_bytes(x: StoredTensor) -> int:
    """The bytes of a tensor in the published files, in which experts have 4 bits and a scale of a byte for 32 weights."""
    n = prod(map(int, x.shape))
    if ".experts." in x.name:
        return n // 2 + n // 32
    return n * (4 if x.name.endswith(FLOAT32) else 2)


def test_bytes_and_tensors_equal_the_published_index() -> None:
    model = llamath.load(CONFIG)
    tensors = list(model.family.hf.tensors(model.tree))
    assert sum(stored_bytes(x) for x in tensors) == TOTAL_SIZE
    assert sum(2 if ".experts." in x.name else 1 for x in tensors) == TENSORS
    shapes = {x.name: tuple(map(int, x.shape)) for x in tensors}
    assert {name: shapes.get(name) for name in PUBLISHED} == PUBLISHED


def test_parts_and_refusals() -> None:
    model = llamath.load(CONFIG)
    assert model.parameters.parts.keys() == {"text", "vision"} and not model.notes
    embedding = int(model.tree.embed.weight.size)
    assert (
        round(model.parameters.total / 1e12, 2) == TOTAL
        and round((model.parameters.active - embedding) / 1e9) == ACTIVE
    )
    assert (
        llamath.flops(model, context=64).prefill.total > 0
        and llamath.memory(model, context=64).kv_cache > 0
    )
    with pytest.raises(llamath.ConfigError, match="num_heads is 64 with a head_dim of 128"):
        llamath.load(
            {
                **CONFIG,
                "text_config": {
                    **CONFIG["text_config"],
                    "linear_attn_config": {
                        **CONFIG["text_config"]["linear_attn_config"],
                        "num_heads": 64,
                    },
                },
            }
        )
