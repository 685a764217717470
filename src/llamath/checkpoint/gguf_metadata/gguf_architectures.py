"""The architectures of GGUF (`general.architecture`): the family of each, and the config keys that
the family reads.

An architecture whose files belong to several families has one record for each; the first that
applies to a header is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

from ...utils.record_type import Record
from .gguf_header import GGUFHeader
from .gguf_keys import fused_attention_heads_kv, head_dim, rms_norm_eps, sliding_layer_types
from .gguf_rope import read_proportional, read_rope_parameters, read_rope_scaling, rope_theta

_ConfigKeys = dict[str, Any]


class Architecture(Record):
    """The translation of headers of one architecture to the configuration of one family."""

    name: str  # general.architecture
    model_type: str
    # names in KEY_MAPPINGS; `key=name` if the family's key has another name; a final `?` writes
    # null for a missing value
    keys: str
    constants: Mapping[str, Any] = {}  # keys that are fixed in llama.cpp and not in the family
    # keys that follow from several metadata keys or tensors
    extra: Callable[[GGUFHeader], _ConfigKeys] | None = None
    applies: Callable[[GGUFHeader], bool] | None = None  # None: to every header
    unstated: str = ""  # a setting that changes results and is not in the metadata


_UNSCALED_LAYERS = {"gemma2": 46, "gemma3": 62}
"""The 27B models, recognized by their number of layers, scale scores by the embedding length per
head, in llama.cpp as in Google's code."""
_MAVERICK_EXPERTS = 128
"""Llama 4 with this many experts (Maverick) has no norms on queries and keys; llama.cpp
recognizes it by that number."""


def _minicpm(h: GGUFHeader) -> _ConfigKeys:
    """Return the scales under MiniCPM's names and in its units."""
    residual, logits, width = (
        h.real("residual_scale"),
        h.real("logit_scale"),
        h.required("embedding_length"),
    )
    keys: _ConfigKeys = (
        {"scale_depth": float(f"{residual * sqrt(h.layers):.6g}")} if residual else {}
    )
    keys["num_experts"] = h.uniform_integer("expert_count") or 0
    return keys | ({"dim_model_base": max(1, round(width / logits))} if logits else {})


def _ministral_rope(h: GGUFHeader) -> _ConfigKeys:
    """Return the positions of Ministral and Mistral 4: YaRN, with a temperature that grows with
    the position.
    """
    rope = read_rope_parameters(h)
    if rope["rope_type"] == "yarn":
        is_mla = h.arch == "mistral4"
        rope |= (
            _mscale(h)
            if is_mla
            else {
                "mscale": 1.0,
                "mscale_all_dim": h.real("rope.scaling.yarn_log_multiplier") or 0.0,
            }
        )
        rope |= {"beta_fast": 32.0, "beta_slow": 1.0} | {
            key: x for key, x in rope.items() if key.startswith("beta")
        }
        temperature = h.real("attention.temperature_scale")
        rope |= (
            {"llama_4_scaling_beta": temperature} if temperature is not None or not is_mla else {}
        )
    return {"rope_parameters": {key: x for key, x in rope.items() if x is not None}}


def _mla_rope(h: GGUFHeader) -> _ConfigKeys:
    """Return DeepSeek's positions, whose scaling also scales the scores."""
    scaling = read_rope_scaling(h)
    return {"rope_theta": rope_theta(h)} | (
        {"rope_scaling": scaling | _mscale(h)} if scaling else {}
    )


def _mscale(h: GGUFHeader) -> _ConfigKeys:
    """Return DeepSeek's two multipliers, which are equal in every published model: llama.cpp
    stores a tenth of them as one number.
    """
    value = h.real("rope.scaling.yarn_log_multiplier")
    return (
        {}
        if value is None
        else dict.fromkeys(("mscale", "mscale_all_dim"), float(f"{value / 0.1:.6g}"))
    )


def _gpt_oss_rope(h: GGUFHeader) -> _ConfigKeys:
    """Return YaRN without truncation of its range; the family's default would be a scaling of
    its own.
    """
    rope = read_rope_parameters(h)
    return {"rope_parameters": rope | ({"truncate": False} if rope["rope_type"] == "yarn" else {})}


def _query_scale(h: GGUFHeader) -> _ConfigKeys:
    """Return `query_pre_attn_scalar`: Gemma divides its scores by the square root."""
    width, heads = h.required("embedding_length"), h.required("attention.head_count")
    size = width // heads if h.layers == _UNSCALED_LAYERS[h.arch] else head_dim(h)
    return {"query_pre_attn_scalar": size} if size else {}


def _llama4(h: GGUFHeader) -> _ConfigKeys:
    """Return the norms and layer types: with a window of 0, all layers have full attention and
    rotary positions.
    """
    if not h.uniform_integer("expert_count"):
        raise h.unsupported("no experts")
    keys: _ConfigKeys = {"use_qk_norm": h.uniform_integer("expert_count") != _MAVERICK_EXPERTS}
    if h.uniform_integer("attention.sliding_window") == 0:
        keys |= {"layer_types": ["full_attention"] * h.layers, "no_rope_layers": [1] * h.layers}
    return keys


def _gemma4(h: GGUFHeader) -> _ConfigKeys:
    """Return two kinds of layers with different heads, shared keys, and the optional experts and
    per-layer embeddings.
    """
    types = sliding_layer_types(h)
    sliding_dim, full_dim = (
        h.uniform_integer("attention.key_length_swa"),
        h.uniform_integer("attention.key_length"),
    )
    if types is None:
        raise h.error("attention.sliding_window_pattern", "is missing")
    sliding, kv = (
        [x == "sliding_attention" for x in types],
        h.per_layer("attention.head_count_kv") or [],
    )
    full_kv, sliding_kv = (
        {n for n, x in zip(kv, sliding, strict=False) if x is kind} for kind in (False, True)
    )
    layers = zip(
        h.layers_with(".attn_k.weight"), h.layers_with(".attn_v.weight"), sliding, strict=True
    )
    k_eq_v = any(k and not v and not x for k, v, x in layers)
    if (
        len(full_kv) > 1
        or len(sliding_kv) > 1
        or (full_kv and sliding_kv and full_kv != sliding_kv and not k_eq_v)
    ):
        raise h.not_uniform("attention.head_count_kv", sorted(full_kv | sliding_kv))
    widths = sorted(set(h.per_layer("feed_forward_length") or ()))
    sliding_rope = {"rope_type": "default", "rope_theta": h.real("rope.freq_base_swa") or 10000.0}
    return {
        "layer_types": types,
        "head_dim": sliding_dim or full_dim,
        "global_head_dim": full_dim,
        "num_key_value_heads": max(sliding_kv or full_kv, default=None),
        "attention_k_eq_v": k_eq_v,
        **({"num_global_key_value_heads": max(full_kv)} if k_eq_v and full_kv else {}),
        "intermediate_size": widths[0] if widths else None,
        "use_double_wide_mlp": len(widths) > 1,
        "num_kv_shared_layers": h.uniform_integer("attention.shared_kv_layers") or 0,
        "rope_parameters": {
            "full_attention": read_proportional(h),
            "sliding_attention": sliding_rope,
        },
        **(
            {"use_bidirectional_attention": "all"} if h.boolean("attention.causal") is False else {}
        ),
        **_gemma4_experts_and_embeddings(h),
    }


def _gemma4_experts_and_embeddings(h: GGUFHeader) -> _ConfigKeys:
    keys: _ConfigKeys = {
        "hidden_size_per_layer_input": h.uniform_integer("embedding_length_per_layer_input") or 0
    }
    if rows := h.rows("per_layer_token_embd.weight"):
        keys["vocab_size_per_layer_input"] = rows
    if h.has_tensor(".ffn_gate_inp.weight"):
        keys["enable_moe_block"] = True
        keys |= {
            "num_experts": h.uniform_integer("expert_count"),
            "top_k_experts": h.uniform_integer("expert_used_count"),
        }
        keys["moe_intermediate_size"] = h.uniform_integer("expert_feed_forward_length")
    return keys


def _olmo3_rope(h: GGUFHeader) -> _ConfigKeys:
    """Return OLMo 3's positions, scaled only in the full-attention layers."""
    sliding = {"rope_type": "default", "rope_theta": h.real("rope.freq_base_swa") or rope_theta(h)}
    return {
        "rope_parameters": {"full_attention": read_rope_parameters(h), "sliding_attention": sliding}
    }


def _nemotron_h(h: GGUFHeader) -> _ConfigKeys:
    """Return the kind of each layer, by its tensors, the sizes of Mamba 2, and the width of a
    plain MLP.
    """
    kinds = zip(
        h.layers_with(".ssm_in.weight"),
        h.layers_with(".attn_q.weight"),
        h.layers_with(".ffn_gate_inp.weight"),
        strict=True,
    )
    heads, inner = h.uniform_integer("ssm.time_step_rank"), h.uniform_integer("ssm.inner_size")
    widths = sorted(set(h.per_layer("feed_forward_length") or ()) - {0})
    return {
        "hybrid_override_pattern": "".join(
            "M" if ssm else "*" if attention else "E" if experts else "-"
            for ssm, attention, experts in kinds
        ),
        "layer_norm_epsilon": rms_norm_eps(h),
        "intermediate_size": h.rows(".ffn_up.weight") or (widths[0] if widths else None),
        "ssm_state_size": h.uniform_integer("ssm.state_size"),
        "n_groups": h.uniform_integer("ssm.group_count"),
        "conv_kernel": h.uniform_integer("ssm.conv_kernel"),
        "mamba_num_heads": heads,
        "mamba_head_dim": inner // heads if inner and heads else None,
        "use_bias": h.has_tensor(".ssm_in.bias"),
        "use_conv_bias": h.has_tensor(".ssm_conv1d.bias"),
        "mlp_bias": h.has_tensor(".ffn_up.bias", ".ffn_up_shexp.bias"),
    }


def _mamba(h: GGUFHeader) -> _ConfigKeys:
    """Return the sizes of Mamba."""
    return {
        "layer_norm_epsilon": rms_norm_eps(h),
        "intermediate_size": h.uniform_integer("ssm.inner_size"),
        "state_size": h.uniform_integer("ssm.state_size"),
        "conv_kernel": h.uniform_integer("ssm.conv_kernel"),
        "time_step_rank": h.uniform_integer("ssm.time_step_rank"),
        "use_bias": h.has_tensor(".ssm_in.bias"),
        "use_conv_bias": h.has_tensor(".ssm_conv1d.bias"),
    }


def _multi_query(h: GGUFHeader) -> _ConfigKeys:
    return {"multi_query": fused_attention_heads_kv(h) == 1}


def _falcon(h: GGUFHeader) -> _ConfigKeys:
    """Return the keys of one of the three Falcon architectures, recognized by key/value heads and
    norms.

    ALiBi is not in GGUF; llama.cpp uses rotary positions.
    """
    heads, kv = h.uniform_integer("attention.head_count"), fused_attention_heads_kv(h)
    has_two_norms = h.has_tensor(".attn_norm_2.weight")
    if has_two_norms or kv not in (1, heads):
        return {
            "new_decoder_architecture": True,
            "num_kv_heads": kv,
            "num_ln_in_parallel_attn": 2 if has_two_norms else 1,
        }
    return {
        "new_decoder_architecture": False,
        "num_kv_heads": kv,
        "multi_query": kv == 1,
        "parallel_attn": not h.has_tensor(".ffn_norm.weight"),
    }


def _mpt(h: GGUFHeader) -> _ConfigKeys:
    """Return the `attn_config`, the feed-forward width as a multiple, and whether positions are
    learned or by ALiBi.
    """
    heads, kv = h.required("attention.head_count"), fused_attention_heads_kv(h)
    width, inner, slope = (
        h.required("embedding_length"),
        h.required("feed_forward_length"),
        h.real("attention.max_alibi_bias") or 0.0,
    )
    if inner % width:
        raise h.unsupported(f"a feed-forward width of {inner} with an embedding length of {width}")
    kinds = {heads: "multihead_attention", 1: "multiquery_attention"}
    attention: _ConfigKeys = {
        "alibi": slope > 0,
        "attn_type": kinds.get(kv or heads, "grouped_query_attention"),
        "qk_ln": h.has_tensor(".attn_q_norm.weight"),
    }
    attention |= {"alibi_bias_max": slope} if slope else {}
    attention |= {"kv_n_heads": kv} if kv not in kinds else {}
    if clip := h.real("attention.clamp_kqv"):
        attention["clip_qkv"] = clip
    return {
        "attn_config": attention,
        "expansion_ratio": inner // width,
        "no_bias": not h.has_tensor(".attn_norm.bias"),
        "learned_pos_emb": h.has_tensor("position_embd.weight"),
    }


_SHAPE = "hidden_size num_hidden_layers num_attention_heads vocab_size tie_word_embeddings"
_BASE = f"{_SHAPE} num_key_value_heads head_dim max_position_embeddings intermediate_size"
_ROTARY = f"{_BASE} rope_theta rope_scaling"
_ROTARY_OF_DENSE_LAYERS = _ROTARY.replace(
    "intermediate_size", "intermediate_size_mlp=intermediate_size"
)
_LLAMA = f"{_ROTARY} rms_norm_eps"
_LOCAL_EXPERTS = "num_local_experts=num_experts num_experts_per_tok"
_MLA = f"""{_SHAPE} max_position_embeddings intermediate_size rms_norm_eps q_lora_rank? kv_lora_rank
    qk_nope_head_dim qk_rope_head_dim v_head_dim attention_bias=mla_bias"""
_DEEPSEEK_MOE = (
    "n_routed_experts=num_experts num_experts_per_tok moe_intermediate_size n_shared_experts "
    "first_k_dense_replace norm_topk_prob"
)
_GROUPED_ROUTING = "routed_scaling_factor n_group topk_group"
_ROUTING = f"{_GROUPED_ROUTING} topk_method scoring_func"
_QWEN_MOE = "num_experts num_experts_per_tok moe_intermediate_size"
_QWEN_SHARED_MOE = f"{_QWEN_MOE} shared_expert_intermediate_size"
_GATED_DELTA = """layer_types=delta_layer_types partial_rotary_factor linear_conv_kernel_dim
    linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim
    attention_bias"""
_NEMOTRON_H = f"{_SHAPE} max_position_embeddings num_key_value_heads head_dim"
_MAMBA = "hidden_size num_hidden_layers vocab_size tie_word_embeddings"
_CLASSIC = f"{_SHAPE} head_dim layer_norm_epsilon=layer_norm_eps"
_GRANITE_SCALES = (
    "attention_multiplier embedding_multiplier residual_multiplier logits_scaling=logit_scale"
)
_QUERY_SCALE_UNSTATED = "the scale of the scores (query_pre_attn_scalar); using llama.cpp's"


def _has_experts(h: GGUFHeader) -> bool:
    return bool(h.uniform_integer("expert_count"))


_RECORDS = (
    Architecture(
        name="llama",
        model_type="mixtral",
        keys=f"{_LLAMA} sliding_window {_LOCAL_EXPERTS}",
        applies=_has_experts,
    ),
    Architecture(
        name="llama", model_type="llama", keys=f"{_LLAMA} attention_bias mlp_bias sliding_window"
    ),
    Architecture(
        name="granite",
        model_type="granite",
        keys=f"{_LLAMA} attention_bias mlp_bias {_GRANITE_SCALES}",
    ),
    Architecture(
        name="granitemoe",
        model_type="granitemoe",
        keys=f"{_LLAMA} attention_bias {_GRANITE_SCALES} {_LOCAL_EXPERTS}",
    ),
    Architecture(
        name="minicpm",
        model_type="minicpm",
        keys=f"{_LLAMA} attention_bias scale_emb=embedding_multiplier num_experts_per_tok",
        extra=_minicpm,
    ),
    Architecture(
        name="smollm3",
        model_type="smollm3",
        keys=f"{_LLAMA} attention_bias mlp_bias",
        unstated="which layers have no rotary positions; using every fourth layer",
    ),
    Architecture(
        name="mistral3",
        model_type="ministral3",
        keys=f"{_BASE} rms_norm_eps sliding_window",
        extra=_ministral_rope,
    ),
    Architecture(
        name="mistral4",
        model_type="mistral4",
        keys=f"{_MLA} {_DEEPSEEK_MOE} {_GROUPED_ROUTING}",
        extra=_ministral_rope,
        unstated="how queries are scaled with the position; using the family's default",
    ),
    Architecture(name="internlm2", model_type="internlm2", keys=f"{_LLAMA} bias=attention_bias"),
    Architecture(name="orion", model_type="orion", keys=f"{_ROTARY} rms_norm_eps=layer_norm_eps"),
    Architecture(name="olmo", model_type="olmo", keys=f"{_ROTARY} attention_bias clip_qkv"),
    Architecture(
        name="olmo2",
        model_type="olmo3",
        keys=f"{_BASE} rms_norm_eps attention_bias sliding_window layer_types=sliding_layer_types",
        extra=_olmo3_rope,
        applies=lambda h: bool(h.uniform_integer("attention.sliding_window")),
    ),
    Architecture(name="olmo2", model_type="olmo2", keys=f"{_LLAMA} attention_bias"),
    Architecture(
        name="olmoe",
        model_type="olmoe",
        keys=f"{_LLAMA} attention_bias clip_qkv num_experts num_experts_per_tok",
    ),
    Architecture(
        name="stablelm",
        model_type="stablelm",
        keys=f"""{_ROTARY} layer_norm_eps partial_rotary_factor use_qkv_bias=attention_bias
            qk_layernorm=use_qk_norm use_parallel_residual=no_mlp_norm""",
    ),
    Architecture(
        name="starcoder2",
        model_type="starcoder2",
        keys=f"{_ROTARY} norm_epsilon=layer_norm_eps use_bias=attention_bias sliding_window",
    ),
    Architecture(
        name="command-r",
        model_type="cohere",
        keys=f"{_ROTARY} layer_norm_eps attention_bias use_qk_norm logit_scale",
    ),
    Architecture(
        name="cohere2",
        model_type="cohere2",
        keys=f"{_ROTARY} layer_norm_eps attention_bias logit_scale sliding_window "
        "layer_types=sliding_layer_types",
    ),
    Architecture(
        name="exaone4",
        model_type="exaone4",
        keys=f"{_LLAMA} sliding_window? layer_types=sliding_layer_types",
    ),
    Architecture(
        name="qwen",
        model_type="qwen",
        keys=f"""{_SHAPE} max_position_embeddings intermediate_size kv_channels=head_dim
            layer_norm_epsilon=rms_norm_eps rotary_emb_base=rope_theta
            rotary_pct=partial_rotary_factor no_bias""",
        unstated="scaling beyond the trained length (use_dynamic_ntk, use_logn_attn); using the "
        "family's defaults",
    ),
    Architecture(name="qwen2", model_type="qwen2", keys=_LLAMA),
    Architecture(name="qwen2vl", model_type="qwen2_vl_text", keys=_LLAMA),
    Architecture(
        name="qwen2moe",
        model_type="qwen2_moe",
        keys=f"{_LLAMA} {_QWEN_SHARED_MOE} qkv_bias=attention_bias mlp_only_layers=dense_layers",
    ),
    Architecture(name="qwen3", model_type="qwen3", keys=f"{_LLAMA} attention_bias"),
    Architecture(name="qwen3vl", model_type="qwen3_vl_text", keys=f"{_LLAMA} attention_bias"),
    Architecture(
        name="qwen3moe",
        model_type="qwen3_moe",
        keys=f"{_LLAMA} {_QWEN_MOE} attention_bias mlp_only_layers=dense_layers",
        constants={"norm_topk_prob": True},
    ),
    Architecture(
        name="qwen3next",
        model_type="qwen3_next",
        keys=f"{_LLAMA} {_QWEN_SHARED_MOE} {_GATED_DELTA} mlp_only_layers=dense_layers",
        constants={"norm_topk_prob": True},
    ),
    Architecture(name="qwen35", model_type="qwen3_5_text", keys=f"{_LLAMA} {_GATED_DELTA}"),
    Architecture(
        name="qwen35moe",
        model_type="qwen3_5_moe_text",
        keys=f"{_LLAMA} {_QWEN_SHARED_MOE} {_GATED_DELTA}",
    ),
    Architecture(
        name="gemma",
        model_type="gemma",
        keys=f"{_LLAMA} attention_bias use_bidirectional_attention=bidirectional",
    ),
    Architecture(
        name="gemma2",
        model_type="gemma2",
        keys=f"{_LLAMA} attention_bias attn_logit_softcapping final_logit_softcapping "
        "sliding_window layer_types=sliding_layer_types",
        extra=_query_scale,
        unstated=_QUERY_SCALE_UNSTATED,
    ),
    Architecture(
        name="gemma3",
        model_type="gemma3_text",
        keys=f"{_LLAMA} attention_bias rope_local_base_freq final_logit_softcapping "
        "sliding_window? layer_types=sliding_layer_types",
        extra=_query_scale,
        unstated=_QUERY_SCALE_UNSTATED,
    ),
    Architecture(
        name="gemma4",
        model_type="gemma4_text",
        keys=f"{_SHAPE} max_position_embeddings rms_norm_eps attention_bias "
        "final_logit_softcapping sliding_window",
        extra=_gemma4,
    ),
    Architecture(
        name="glm4", model_type="glm4", keys=f"{_LLAMA} attention_bias partial_rotary_factor"
    ),
    Architecture(
        name="glm4moe",
        model_type="glm4_moe",
        keys=f"{_LLAMA} {_DEEPSEEK_MOE} {_GROUPED_ROUTING} attention_bias partial_rotary_factor "
        "use_qk_norm topk_method num_nextn_predict_layers",
        constants={"scoring_func": "sigmoid"},
    ),
    Architecture(
        name="minimax-m2",
        model_type="minimax_m2",
        keys=f"{_LLAMA} {_LOCAL_EXPERTS} rotary_dim use_qk_norm use_routing_bias",
    ),
    Architecture(
        name="gpt-oss",
        model_type="gpt_oss",
        keys=f"{_BASE} rms_norm_eps {_LOCAL_EXPERTS} attention_bias sliding_window "
        "layer_types=sliding_layer_types",
        extra=_gpt_oss_rope,
        unstated="where the experts' gates are clamped (swiglu_limit); using 7",
    ),
    Architecture(
        name="llama4",
        model_type="llama4_text",
        keys=f"""{_ROTARY_OF_DENSE_LAYERS} intermediate_size=moe_intermediate_size
            rms_norm_eps {_LOCAL_EXPERTS} attention_bias interleave_moe_layer_step moe_layers""",
        constants={"no_rope_layer_interval": 4},
        extra=_llama4,
    ),
    Architecture(
        name="phi2",
        model_type="phi-msft",  # Microsoft's own files have one fused matrix
        keys=f"{_ROTARY} layer_norm_eps rotary_dim",
        applies=lambda h: h.has_tensor(".attn_qkv.weight"),
    ),
    Architecture(
        name="phi2",
        model_type="phi",
        keys=f"{_ROTARY} layer_norm_eps rotary_dim qk_layernorm=use_qk_norm",
    ),
    Architecture(
        name="phi3", model_type="phi3", keys=f"{_LLAMA} partial_rotary_factor sliding_window"
    ),
    Architecture(
        name="phimoe",
        model_type="phimoe",
        keys=f"{_LLAMA} {_LOCAL_EXPERTS} attention_bias lm_head_bias sliding_window",
    ),
    Architecture(
        name="deepseek", model_type="deepseek", keys=f"{_LLAMA} {_DEEPSEEK_MOE} attention_bias"
    ),
    Architecture(
        name="deepseek2",
        model_type="deepseek_v3",
        keys=f"{_MLA} {_DEEPSEEK_MOE} {_ROUTING}",
        extra=_mla_rope,
        applies=lambda h: h.uniform_integer("expert_gating_func") == 2,  # sigmoid
    ),
    Architecture(
        name="deepseek2",
        model_type="deepseek_v2",
        keys=f"{_MLA} {_DEEPSEEK_MOE} {_ROUTING}",
        extra=_mla_rope,
    ),
    Architecture(
        name="lfm2",
        model_type="lfm2",
        keys=f"{_BASE} norm_eps=rms_norm_eps rope_theta rope_scaling conv_L_cache conv_bias "
        "layer_types=conv_layer_types",
        constants={"block_auto_adjust_ff_dim": False},
    ),
    Architecture(name="nemotron_h", model_type="nemotron_h", keys=_NEMOTRON_H, extra=_nemotron_h),
    Architecture(
        name="nemotron_h_moe",
        model_type="nemotron_h",
        keys=f"""{_NEMOTRON_H} n_routed_experts=num_experts num_experts_per_tok
            moe_intermediate_size moe_latent_size norm_topk_prob {_GROUPED_ROUTING}
            moe_shared_expert_intermediate_size=shared_expert_intermediate_size""",
        extra=_nemotron_h,
    ),
    Architecture(
        name="mamba",
        model_type="falcon_mamba",
        keys=_MAMBA,
        extra=_mamba,
        applies=lambda h: h.boolean("ssm.dt_b_c_rms") is True,
        unstated="the epsilon of the norms of time steps, b and c (mixer_rms_eps); using the "
        "family's default",
    ),
    Architecture(name="mamba", model_type="mamba", keys=_MAMBA, extra=_mamba),
    Architecture(
        name="gpt2",
        model_type="gpt2",
        keys=f"{_CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size",
    ),
    Architecture(
        name="starcoder",
        model_type="gpt_bigcode",
        keys=f"{_CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size",
        extra=_multi_query,
    ),
    Architecture(
        name="gptj",
        model_type="gptj",
        keys=f"{_CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size rotary_dim",
    ),
    Architecture(
        name="gptneox",
        model_type="gpt_neox",
        keys=f"""{_SHAPE} head_dim max_position_embeddings intermediate_size layer_norm_eps
            use_parallel_residual attention_bias rope_theta rope_scaling
            rotary_pct=partial_rotary_factor""",
    ),
    Architecture(name="bloom", model_type="bloom", keys=_CLASSIC),
    Architecture(
        name="falcon",
        model_type="falcon",
        keys=f"{_CLASSIC} max_position_embeddings ffn_hidden_size=intermediate_size "
        "bias=attention_bias rope_theta rope_scaling",
        extra=_falcon,
    ),
    Architecture(
        name="mpt",
        model_type="mpt",
        keys="""d_model=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads
            max_seq_len=max_position_embeddings vocab_size tie_word_embeddings
            layer_norm_epsilon=layer_norm_eps head_dim""",
        extra=_mpt,
    ),
)

ARCHITECTURES: Mapping[str, tuple[Architecture, ...]] = {
    x.name: tuple(y for y in _RECORDS if y.name == x.name) for x in _RECORDS
}
"""`general.architecture` → its records, in the order in which they are tried."""


def find_architecture(header: GGUFHeader) -> Architecture | None:
    """Return the record that applies to a header; None if the architecture is unknown."""
    records = ARCHITECTURES.get(header.arch, ())
    return next((x for x in records if x.applies is None or x.applies(header)), None)
