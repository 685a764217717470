"""What no single key of GGUF says: keys that some families read and that several of its keys, or the tensors, say together."""

from __future__ import annotations

from math import sqrt
from typing import Any

from .gguf_header import Header
from .gguf_heads import fused_kv_heads, head_dim
from .gguf_keys import rms_or_layer_eps, windowed
from .gguf_rope import proportional, rope_parameters, rope_scaling, rope_theta

Keys = dict[str, Any]
GLOBAL_SCALE = {"gemma2": 46, "gemma3": 62}
"""Models of so many layers (the 27Bs) scale their scores by the width shared among the heads, in llama.cpp as in Google's code."""
NORMED_QUERIES = 128
"""Llama 4 with so many experts (Maverick) has no norms on queries and keys; llama.cpp tells it by that."""


def minicpm(h: Header) -> Keys:
    """The scales of a family that knows them by other names, undone."""
    branch, logits, width = h.real("residual_scale"), h.real("logit_scale"), h.needed("embedding_length")
    found: Keys = {"scale_depth": float(f"{branch * sqrt(h.layers):.6g}")} if branch else {}
    found["num_experts"] = h.number("expert_count") or 0
    return found | ({"dim_model_base": max(1, round(width / logits))} if logits else {})


def growing(h: Header) -> Keys:
    """Positions of the Ministrals and of Mistral 4: stretched, with queries that grow."""
    found = rope_parameters(h)
    if found["rope_type"] == "yarn":
        latent = h.arch == "mistral4"
        found |= _mscale(h, 0.1) if latent else {"mscale": 1.0, "mscale_all_dim": h.real("rope.scaling.yarn_log_multiplier") or 0.0}
        found |= {"beta_fast": 32.0, "beta_slow": 1.0} | {key: x for key, x in found.items() if key.startswith("beta")}
        growth = h.real("attention.temperature_scale")
        found |= {"llama_4_scaling_beta": growth} if growth is not None or not latent else {}
    return {"rope_parameters": {key: x for key, x in found.items() if x is not None}}


def latent_rope(h: Header) -> Keys:
    """Positions of DeepSeek's, whose scaling also scales the scores."""
    scaling = rope_scaling(h)
    return {"rope_theta": rope_theta(h)} | ({"rope_scaling": scaling | _mscale(h, 0.1)} if scaling else {})


def _mscale(h: Header, unit: float) -> Keys:
    """llama.cpp keeps one number for DeepSeek's two, a tenth of them; they are the same in every published model."""
    value = h.real("rope.scaling.yarn_log_multiplier")
    return {} if value is None else dict.fromkeys(("mscale", "mscale_all_dim"), float(f"{value / unit:.6g}"))


def gpt_oss(h: Header) -> Keys:
    """Positions, stretched without rounding where the stretch begins and ends; silence would mean the family's own scaling."""
    found = rope_parameters(h)
    return {"rope_parameters": found | ({"truncate": False} if found["rope_type"] == "yarn" else {})}


def queries(h: Header) -> Keys:
    """By what Gemma's scores are divided, squared."""
    width, heads = h.needed("embedding_length"), h.needed("attention.head_count")
    size = width // heads if h.layers == GLOBAL_SCALE[h.arch] else head_dim(h)
    return {"query_pre_attn_scalar": size} if size else {}


def llama4(h: Header) -> Keys:
    """Norms on queries, and windows: a window of 0 says that all layers are alike."""
    if not h.number("expert_count"):
        raise h.refusal("no experts")
    found: Keys = {"use_qk_norm": h.number("expert_count") != NORMED_QUERIES}
    if h.number("attention.sliding_window") == 0:
        found |= {"layer_types": ["full_attention"] * h.layers, "no_rope_layers": [1] * h.layers}
    return found


def gemma4(h: Header) -> Keys:
    """Two kinds of layers, each with heads of its own; layers that borrow keys; experts beside an MLP; inputs for each layer."""
    types, near, far = windowed(h), h.number("attention.key_length_swa"), h.number("attention.key_length")
    if types is None:
        raise h.error("attention.sliding_window_pattern", "is missing")
    window, kv = [x == "sliding_attention" for x in types], h.each("attention.head_count_kv") or []
    few, many = ({n for n, x in zip(kv, window, strict=False) if x is kind} for kind in (False, True))
    twins = any(k and not v and not x for k, v, x in zip(h.where(".attn_k.weight"), h.where(".attn_v.weight"), window, strict=True))
    if len(few) > 1 or len(many) > 1 or (few and many and few != many and not twins):
        raise h.uneven("attention.head_count_kv", sorted(few | many))
    widths = sorted(set(h.each("feed_forward_length") or ()))
    near_rope = {"rope_type": "default", "rope_theta": h.real("rope.freq_base_swa") or 10000.0}
    return {
        "layer_types": types,
        "head_dim": near or far,
        "global_head_dim": far,
        "num_key_value_heads": max(many or few, default=None),
        "attention_k_eq_v": twins,
        **({"num_global_key_value_heads": max(few)} if twins and few else {}),
        "intermediate_size": widths[0] if widths else None,
        "use_double_wide_mlp": len(widths) > 1,
        "num_kv_shared_layers": h.number("attention.shared_kv_layers") or 0,
        "rope_parameters": {"full_attention": proportional(h), "sliding_attention": near_rope},
        **({"use_bidirectional_attention": "all"} if h.flag("attention.causal") is False else {}),
        **_gemma4_parts(h),
    }


def two_bases(h: Header) -> Keys:
    """Positions of OLMo 3: stretched in the layers without a window alone."""
    near = {"rope_type": "default", "rope_theta": h.real("rope.freq_base_swa") or rope_theta(h)}
    return {"rope_parameters": {"full_attention": rope_parameters(h), "sliding_attention": near}}


def _gemma4_parts(h: Header) -> Keys:
    """Experts and per-layer inputs, where there are any."""
    found: Keys = {"hidden_size_per_layer_input": h.number("embedding_length_per_layer_input") or 0}
    if rows := h.rows("per_layer_token_embd.weight"):
        found["vocab_size_per_layer_input"] = rows
    if h.has(".ffn_gate_inp.weight"):
        found |= {"enable_moe_block": True, "num_experts": h.number("expert_count"), "top_k_experts": h.number("expert_used_count")}
        found["moe_intermediate_size"] = h.number("expert_feed_forward_length")
    return found


def nemotron(h: Header) -> Keys:
    """What each layer is, told by its tensors; Mamba's sizes; a plain MLP's width."""
    kinds = zip(h.where(".ssm_in.weight"), h.where(".attn_q.weight"), h.where(".ffn_gate_inp.weight"), strict=True)
    heads, inner = h.number("ssm.time_step_rank"), h.number("ssm.inner_size")
    widths = sorted(set(h.each("feed_forward_length") or ()) - {0})
    return {
        "hybrid_override_pattern": "".join(
            "M" if mamba else "*" if attends else "E" if experts else "-" for mamba, attends, experts in kinds
        ),
        "layer_norm_epsilon": rms_or_layer_eps(h),
        "intermediate_size": h.rows(".ffn_up.weight") or (widths[0] if widths else None),
        "ssm_state_size": h.number("ssm.state_size"),
        "n_groups": h.number("ssm.group_count"),
        "conv_kernel": h.number("ssm.conv_kernel"),
        "mamba_num_heads": heads,
        "mamba_head_dim": inner // heads if inner and heads else None,
        "use_bias": h.has(".ssm_in.bias"),
        "use_conv_bias": h.has(".ssm_conv1d.bias"),
        "mlp_bias": h.has(".ffn_up.bias", ".ffn_up_shexp.bias"),
    }


def one_key_head(h: Header) -> Keys:
    """Whether all queries share one key head."""
    return {"multi_query": fused_kv_heads(h) == 1}


def falcon(h: Header) -> Keys:
    """Which of the three Falcons: by its key heads and norms. ALiBi is not in GGUF; llama.cpp rotates."""
    heads, kv = h.number("attention.head_count"), fused_kv_heads(h)
    two = h.has(".attn_norm_2.weight")
    if two or kv not in (1, heads):
        return {"new_decoder_architecture": True, "num_kv_heads": kv, "num_ln_in_parallel_attn": 2 if two else 1}
    return {"new_decoder_architecture": False, "num_kv_heads": kv, "multi_query": kv == 1, "parallel_attn": not h.has(".ffn_norm.weight")}


def mpt(h: Header) -> Keys:
    """Attention in an object of its own, the feed-forward width as a multiple, positions learned or by ALiBi."""
    heads, kv = h.needed("attention.head_count"), fused_kv_heads(h)
    width, inner, slope = h.needed("embedding_length"), h.needed("feed_forward_length"), h.real("attention.max_alibi_bias") or 0.0
    if inner % width:
        raise h.refusal(f"a feed-forward width of {inner} for a width of {width}")
    kinds = {heads: "multihead_attention", 1: "multiquery_attention"}
    attention: Keys = {
        "alibi": slope > 0,
        "attn_type": kinds.get(kv or heads, "grouped_query_attention"),
        "qk_ln": h.has(".attn_q_norm.weight"),
    }
    attention |= {"alibi_bias_max": slope} if slope else {}
    attention |= {"kv_n_heads": kv} if kv not in kinds else {}
    if clip := h.real("attention.clamp_kqv"):
        attention["clip_qkv"] = clip
    return {
        "attn_config": attention,
        "expansion_ratio": inner // width,
        "no_bias": not h.has(".attn_norm.bias"),
        "learned_pos_emb": h.has("position_embd.weight"),
    }
