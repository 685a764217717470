"""Hugging Face's keys, one by one: what in a GGUF header says the same. A fact that is None is left unsaid.

The meanings are those that llama.cpp gives its keys (`load_hparams` in src/llama-model.cpp and src/models/), and how its converters write
them (conversion/ in the same repository).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .gguf_header import Header
from .gguf_heads import fused_kv_heads, head_dim, kv_heads, partial_rotary_factor, rotary_dim
from .gguf_rope import rope_parameters, rope_scaling, rope_theta

Fact = Callable[[Header], Any]

NUMBERS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "moe_latent_size": "moe_latent_size",
    "first_k_dense_replace": "leading_dense_block_count",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "num_kv_shared_layers": "attention.shared_kv_layers",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
    "conv_L_cache": "shortconv.l_cache",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
REALS = {
    "rope_local_base_freq": "rope.freq_base_swa",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "logit_scale": "logit_scale",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "clip_qkv": "attention.clamp_kqv",
}
TENSORS = {
    "attention_bias": ".attn_q.bias .attn_qkv.bias",
    "latent_bias": ".attn_kv_a_mqa.bias",
    "output_bias": ".attn_output.bias",
    "mlp_bias": ".ffn_gate.bias .ffn_up.bias .ffn_up_shexp.bias",
    "lm_head_bias": "output.bias",
    "conv_bias": ".shortconv.conv.bias",
    "use_qk_norm": ".attn_q_norm.weight",
    "use_routing_bias": ".exp_probs_b.bias",
}
"""What is so if one of these tensors is there."""


def rms_or_layer_eps(h: Header) -> float | None:
    """The one key or the other: converters have written either for the same norm."""
    rms, plain = h.real("attention.layer_norm_rms_epsilon"), h.real("attention.layer_norm_epsilon")
    return plain if rms is None else rms


def layer_eps(h: Header) -> float | None:
    """Of norms that also subtract the mean."""
    return h.real("attention.layer_norm_epsilon") if h.raw("attention.layer_norm_epsilon") is not None else rms_or_layer_eps(h)


def vocab_size(h: Header) -> int | None:
    """The vocabulary that the header states or lists, and of two that differ the one that the embedding has rows for."""
    tokens = h.metadata.get("tokenizer.ggml.tokens")
    said = [x for x in (h.number("vocab_size"), getattr(tokens, "count", None)) if x]
    rows = h.rows("token_embd.weight")
    if said and rows and rows != said[0]:
        h.notes.append(f"the header states a vocabulary of {' and '.join(f'{x:,}' for x in said)}; token_embd.weight has {rows:,} rows")
    return rows if rows in said or not said else said[0]


def sliding_window(h: Header) -> int | None:
    """How far back a windowed layer sees; 0 stands for no window."""
    return h.number("attention.sliding_window") or None


def windowed(h: Header) -> list[str] | None:
    """Which layers have a window: a list, or a period whose last layer has none."""
    pattern = h.raw("attention.sliding_window_pattern")
    if pattern is None:
        return None
    if type(pattern) is int:
        near = [pattern == 0 or i % pattern < pattern - 1 for i in range(h.layers)]
    else:
        near = h.listed("attention.sliding_window_pattern")[: h.layers]
    return ["sliding_attention" if x else "full_attention" for x in near]


def mixers(h: Header) -> list[str]:
    """Which layers attend in full, of those that mostly do not: told by their tensors."""
    return ["full_attention" if x else "linear_attention" for x in h.where(".attn_q.weight")]


def convolutions(h: Header) -> list[str]:
    """The same of layers that otherwise have a short convolution."""
    return ["conv" if x else "full_attention" for x in h.where(".shortconv.conv.weight")]


def dense_layers(h: Header) -> list[int] | None:
    """Which layers have no experts, where others have."""
    return [i for i, sparse in enumerate(h.where(".ffn_gate_inp.weight")) if not sparse] or None


def sparse_layers(h: Header) -> list[int] | None:
    """Which layers have experts, if that is not every so many-th."""
    found, step = [i for i, x in enumerate(h.where(".ffn_gate_inp.weight")) if x], h.number("interleave_moe_layer_step") or 1
    return None if found == list(range(step - 1, h.layers, step)) else found


def key_without_position(h: Header) -> int | None:
    """Of a key of latent attention, what does not rotate; files of before April 2025 have no keys of their own for this."""
    whole, turned = h.number("attention.key_length_mla") or h.number("attention.key_length"), h.number("rope.dimension_count")
    return whole - turned if whole and turned and whole > turned else None


def value_size(h: Header) -> int | None:
    """Of a value of latent attention."""
    return h.number("attention.value_length_mla") or h.number("attention.value_length")


def topk_method(h: Header) -> str:
    """How DeepSeek's router chooses: with a learned bias, within groups, or among all."""
    if h.has(".exp_probs_b.bias"):
        return "noaux_tc"
    return "group_limited_greedy" if (h.number("expert_group_count") or 1) > 1 else "greedy"


def scoring_func(h: Header) -> str:
    """llama.cpp's numbers: 1 softmax, 2 sigmoid; softmax where the header is silent."""
    return "sigmoid" if h.number("expert_gating_func") == 2 else "softmax"


def linear_value_head_dim(h: Header) -> int | None:
    """The width of all values shared among their heads."""
    inner, heads = h.number("ssm.inner_size"), h.number("ssm.time_step_rank")
    return inner // heads if inner and heads and inner % heads == 0 else None


COMPUTED: Mapping[str, Fact] = {
    "num_hidden_layers": lambda h: h.layers,
    "tie_word_embeddings": lambda h: not h.has("output.weight"),
    "norm_topk_prob": lambda h: h.flag("expert_weights_norm") or False,
    "routed_scaling_factor": lambda h: h.real("expert_weights_scale") or 1.0,
    "no_bias": lambda h: not h.has(".attn_output.bias"),
    "n_group": lambda h: h.number("expert_group_count") or 1,
    "topk_group": lambda h: h.number("expert_group_used_count") or 1,
    "qk_rope_head_dim": lambda h: h.number("rope.dimension_count"),
    "use_parallel_residual": lambda h: h.flag("use_parallel_residual"),
    "without_mlp_norm": lambda h: not h.has(".ffn_norm.weight"),
    "rms_norm_eps": rms_or_layer_eps,
    "layer_norm_eps": layer_eps,
    "num_key_value_heads": kv_heads,
    "bidirectional": lambda h: True if h.flag("attention.causal") is False else None,
    "qk_nope_head_dim": key_without_position,
    "v_head_dim": value_size,
}
HERE = (
    head_dim, rotary_dim, partial_rotary_factor, vocab_size, rope_theta, rope_scaling, rope_parameters, sliding_window, windowed, mixers,
    convolutions, dense_layers, sparse_layers, topk_method, scoring_func, linear_value_head_dim, fused_kv_heads,
)  # fmt: skip


def _number(key: str) -> Fact:
    return lambda h: h.number(key)


def _real(key: str) -> Fact:
    return lambda h: h.real(key)


def _present(names: str) -> Fact:
    return lambda h: h.has(*names.split())


FACTS: Mapping[str, Fact] = {
    **{name: _number(key) for name, key in NUMBERS.items()},
    **{name: _real(key) for name, key in REALS.items()},
    **{name: _present(names) for name, names in TENSORS.items()},
    **{fact.__name__: fact for fact in HERE},
    **COMPUTED,
}
"""Name → how it is found. Most names are the keys that most families read."""
