"""Mistral's `params.json` of models with latent attention and experts (Mistral Large 3), as Hugging
Face's keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.config import Config

_EXPERTS = {
    "num_experts": "n_routed_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "expert_hidden_dim": "moe_intermediate_size",
    "num_shared_experts": "n_shared_experts",
    "first_k_dense_replace": "first_k_dense_replace",
    "route_every_n": "moe_layer_freq",
    "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
}
_SIZES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "vocab_size": "vocab_size",
    **{
        key: key
        for key in (
            "q_lora_rank",
            "kv_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "v_head_dim",
        )
    },
}
_VISION = (
    "hidden_size",
    "image_size",
    "intermediate_size",
    "num_attention_heads",
    "num_channels",
    "num_hidden_layers",
    "patch_size",
)


def is_latent(data: Mapping[str, Any]) -> bool:
    """Whether these keys of a `params.json` describe latent attention."""
    return data.get("kv_lora_rank") is not None


def parse_latent_params(data: Mapping[str, Any], source: str) -> tuple[dict[str, Any], Config]:
    """Return the keys of a `config.json` of the same model, and the keys that were read."""
    c = Config(data, source)
    text: dict[str, Any] = {"model_type": "mistral4"}
    text |= {ours: int(c.dim("n", key)) for key, ours in _SIZES.items()}
    head, heads = text["qk_nope_head_dim"] + text["qk_rope_head_dim"], text["num_attention_heads"]
    c.require("head_dim", head, "it is that of both parts of a query together")
    c.require("n_kv_heads", heads, "latent attention has as many keys as queries")
    text["num_key_value_heads"] = heads
    text["rms_norm_eps"] = c.get("norm_eps", 1e-5)
    text["tie_word_embeddings"] = c.get("tied_embeddings", False)
    context = c.positive_int("max_seq_len") or c.positive_int("max_position_embeddings")
    text["max_position_embeddings"] = context
    c.ignore("max_position_embeddings")
    text |= _experts(c.sub("moe")) | {"rope_parameters": _positions(c)}
    if "vision_encoder" not in c:
        return text, c
    return {
        "model_type": "mistral3",
        "tie_word_embeddings": text["tie_word_embeddings"],
        "text_config": text,
        **_vision(c.sub("vision_encoder")),
    }, c


def _experts(s: Config) -> dict[str, Any]:
    keys = {ours: int(s.dim("n", key)) for key, ours in _EXPERTS.items()}
    s.ignore("expert_parallel", "expert_model_parallel")
    return keys | {"routed_scaling_factor": s.get("routed_scale", 1.0), "norm_topk_prob": True}


def _positions(c: Config) -> dict[str, Any]:
    """Return YaRN, and how queries are scaled by their position."""
    s, scaling = c.sub("yarn"), c.sub("llama_4_scaling")
    original = s["original_max_position_embeddings"]
    scaling.require("original_max_position_embeddings", original, "it is that of yarn")
    keys = {
        "rope_type": "yarn",
        "rope_theta": c.get("rope_theta", 10000.0),
        "factor": s["factor"],
        "original_max_position_embeddings": original,
        "beta_fast": s.get("beta", 32.0),
        "beta_slow": s.get("alpha", 1.0),
        "llama_4_scaling_beta": scaling["beta"],
    }
    scaled = {"mscale": 1.0, "mscale_all_dim": 1.0}
    return keys | (scaled if s.get("apply_scale", True) else {"attention_factor": 1.0})


def _vision(s: Config) -> dict[str, Any]:
    """Return Pixtral's tower, and the merger of patches after it."""
    tower: dict[str, Any] = {key: int(s.dim("n", key)) for key in _VISION}
    s.require("mm_projector_id", "patch_merge", "the published model has it")
    s.require("add_pre_mm_projector_layer_norm", True, "the published model has it")
    s.ignore("image_token_id", "image_break_token_id", "image_end_token_id", "max_image_size")
    bias, merge = s.get("adapter_bias", False), s.positive_int("spatial_merge_size", 2)
    theta = s.get("rope_theta", 10000.0)
    return {
        "vision_config": {"model_type": "pixtral", "rope_theta": theta, **tower},
        "multimodal_projector_bias": bias,
        "spatial_merge_size": merge,
    }
