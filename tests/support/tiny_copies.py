"""`MODELS`: small copies of published models, whose numbers can be followed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDTH = 4
_SIZES = {"vocab_size": 4, "hidden_size": WIDTH, "intermediate_size": 3, "num_hidden_layers": 1, "num_attention_heads": 2}  # fmt: skip
_GROUPED = _SIZES | {"num_key_value_heads": 1, "head_dim": 2}
_LATENT = _SIZES | {"num_key_value_heads": 2, "kv_lora_rank": 2, "q_lora_rank": 2, "qk_nope_head_dim": 2, "qk_rope_head_dim": 4, "v_head_dim": 2}  # fmt: skip
_STATE = {"state_size": 2, "conv_kernel": 2}
_EXPERTS = {"moe_intermediate_size": 2, "num_experts_per_tok": 2, "norm_topk_prob": True}
_GROUPS = _EXPERTS | {"n_routed_experts": 6, "n_shared_experts": 1, "n_group": 3, "topk_group": 2, "num_hidden_layers": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5}  # fmt: skip
_OPT = {"model_type": "opt", "vocab_size": 4, "hidden_size": WIDTH, "ffn_dim": 3, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 8}  # fmt: skip
MODELS: Mapping[str, Mapping[str, Any]] = {
    "Llama": _GROUPED | {"model_type": "llama"},
    "DeepSeek V3": _LATENT
    | _GROUPS
    | {
        "model_type": "deepseek_v3",
        "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4,
        },
    },
    "Mixtral": _GROUPED
    | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "GLM-4.5": _GROUPED
    | _EXPERTS
    | {
        "model_type": "glm4_moe",
        "partial_rotary_factor": 1.0,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "first_k_dense_replace": 0,
    },
    "Qwen3 Next": _GROUPED
    | _EXPERTS
    | {
        "model_type": "qwen3_next",
        "num_hidden_layers": 2,
        "full_attention_interval": 2,
        "partial_rotary_factor": 1.0,
        "linear_key_head_dim": 2,
        "linear_value_head_dim": 2,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_conv_kernel_dim": 2,
        "num_experts": 4,
        "shared_expert_intermediate_size": 2,
    },
    "Mamba": _SIZES
    | {"model_type": "mamba", "intermediate_size": 4, **_STATE, "time_step_rank": 1},
    "Falcon Mamba": _SIZES
    | {"model_type": "falcon_mamba", "intermediate_size": 4, **_STATE, "time_step_rank": 1},
    "Mamba-2": _SIZES
    | {"model_type": "mamba2", **_STATE, "num_heads": 2, "head_dim": 2, "n_groups": 1, "expand": 1},
    "MiniMax": _GROUPED
    | {
        "model_type": "minimax",
        "num_local_experts": 4,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "rotary_dim": 2,
    },
    "LFM2": _GROUPED
    | {
        "model_type": "lfm2",
        "num_hidden_layers": 2,
        "conv_L_cache": 2,
        "full_attn_idxs": [1],
        "block_multiple_of": 2,
    },
    "Kimi Linear": _LATENT
    | _EXPERTS
    | {
        "model_type": "kimi_linear",
        "pad_token_id": 0,
        "q_lora_rank": None,
        "num_hidden_layers": 2,
        "num_experts": 4,
        "num_experts_per_token": 2,
        "num_shared_experts": 1,
        "linear_attn_config": {
            "full_attn_layers": [2],
            "kda_layers": [1],
            "head_dim": 2,
            "num_heads": 2,
            "short_conv_kernel_size": 2,
        },
        "first_k_dense_replace": 0,
        "model_max_length": 64,
    },
    "GPT-2": {
        "model_type": "gpt2",
        "vocab_size": 4,
        "n_embd": WIDTH,
        "n_layer": 1,
        "n_head": 2,
        "n_inner": 3,
        "n_positions": 4,
    },
    "Gemma 2": _GROUPED | {"model_type": "gemma2", "query_pre_attn_scalar": 2, "sliding_window": 2},
    "Qwen3": _GROUPED | {"model_type": "qwen3"},
    "BLOOM": {"model_type": "bloom", "vocab_size": 4, "n_embed": WIDTH, "n_layer": 1, "n_head": 4},
    "gpt-oss": _GROUPED
    | _EXPERTS
    | {"model_type": "gpt_oss", "num_local_experts": 4, "sliding_window": 2},
    "Command R": _GROUPED | {"model_type": "cohere"},
    "SmolLM3": _GROUPED | {"model_type": "smollm3", "no_rope_layers": [0]},
    "OPT": _OPT,
    "Nemotron": _GROUPED | {"model_type": "nemotron", "partial_rotary_factor": 1.0},
    "OLMo": _SIZES | {"model_type": "olmo"},
    "GELU Llama": _GROUPED | {"model_type": "llama", "hidden_act": "gelu"},
    "ReLU Llama": _GROUPED | {"model_type": "llama", "hidden_act": "relu2"},
    "Gemma 4": _GROUPED
    | {
        "model_type": "gemma4_text",
        "global_head_dim": 2,
        "layer_types": ["full_attention"],
        "hidden_size_per_layer_input": 2,
        "vocab_size_per_layer_input": 4,
        "sliding_window": 2,
    },
    "GPT-NeoX": _SIZES | {"model_type": "gpt_neox", "hidden_act": "gelu_fast", "rotary_pct": 1.0},
    "DeepSeek V2": _LATENT
    | _GROUPS
    | {"model_type": "deepseek_v2", "topk_method": "group_limited_greedy"},
    "Llama 4": _GROUPED
    | _EXPERTS
    | {
        "model_type": "llama4_text",
        "intermediate_size_mlp": 3,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "attention_chunk_size": 2,
    },
    "OPT with norms of branches": _OPT | {"do_layer_norm_before": False},
    "OLMo 2": _GROUPED | {"model_type": "olmo2"},
    "XGLM": {
        "model_type": "xglm",
        "vocab_size": 4,
        "d_model": WIDTH,
        "ffn_dim": 3,
        "num_layers": 1,
        "attention_heads": 2,
        "max_position_embeddings": 8,
    },
    "DeepSeek V3.2": _LATENT
    | _GROUPS
    | {"model_type": "deepseek_v32", "index_n_heads": 2, "index_head_dim": 4, "index_topk": 2},
    "Gemma": _GROUPED | {"model_type": "gemma"},
    "Gemma 3": _GROUPED
    | {"model_type": "gemma3_text", "query_pre_attn_scalar": 2, "sliding_window": 2},
    "Qwen2": _GROUPED | {"model_type": "qwen2"},
    "Qwen3 MoE": _GROUPED | _EXPERTS | {"model_type": "qwen3_moe", "num_experts": 4},
    "Kimi K2": _LATENT | _GROUPS | {"model_type": "kimi_k2", "n_group": 1, "topk_group": 1},
    "DeepSeek MoE": _GROUPED
    | _EXPERTS
    | {
        "model_type": "deepseek",
        "num_hidden_layers": 2,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "norm_topk_prob": False,
    },
    "Jamba": _GROUPED
    | {
        "model_type": "jamba",
        "num_hidden_layers": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 2,
        "mamba_d_conv": 2,
        "mamba_expand": 1,
        "mamba_dt_rank": 1,
    },
    "Nemotron-H": _GROUPED
    | {
        "model_type": "nemotron_h",
        "ssm_state_size": 2,
        "mamba_num_heads": 2,
        "mamba_head_dim": 2,
        "n_groups": 1,
        "conv_kernel": 2,
        "num_hidden_layers": 4,
        "hybrid_override_pattern": "M-*-",
    },
    "Granite 4.0 H": _GROUPED
    | {
        "model_type": "granitemoehybrid",
        "intermediate_size": 2,
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 2,
        "mamba_n_heads": 2,
        "mamba_d_head": 2,
        "mamba_n_groups": 1,
        "mamba_d_state": 2,
        "mamba_d_conv": 2,
        "mamba_expand": 1,
        "layer_types": ["mamba", "attention"],
        "position_embedding_type": "nope",
    },
    "Phi": _SIZES | {"model_type": "phi", "partial_rotary_factor": 1.0},
    "GPT-J": {
        "model_type": "gptj",
        "vocab_size": 4,
        "n_embd": WIDTH,
        "n_layer": 1,
        "n_head": 2,
        "n_inner": 3,
        "n_positions": 8,
        "rotary_dim": 2,
    },
    "Falcon": {
        "model_type": "falcon",
        "vocab_size": 4,
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "ffn_hidden_size": 3,
        "multi_query": True,
        "parallel_attn": True,
    },
    "MPT": {
        "model_type": "mpt",
        "vocab_size": 4,
        "d_model": WIDTH,
        "n_layers": 1,
        "n_heads": 4,
        "max_seq_len": 8,
    },
    "EXAONE 4": _GROUPED
    | {"model_type": "exaone4", "layer_types": ["full_attention"], "sliding_window": None},
}
"""Small copies of published models, by the name of the model."""
