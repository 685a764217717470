"""The table of GGUF metadata keys and Hugging Face config keys.

The meanings are those that llama.cpp gives its keys (`load_hparams` in src/llama-model.cpp and
src/models/), and how its converters write them (conversion/ in the same repository). Counts are
written as UINT32 and other numbers as FLOAT32, as the gguf package does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nextafter
from typing import Any, NamedTuple

from ...utils.record_type import Record
from ..formats.gguf import BOOL, FLOAT32, STRING, UINT32, Array, Kind
from .gguf_header import GGUFHeader


class MetadataValue(NamedTuple):
    """A metadata key with its value, as it is written; with `array`, the value is a list of that
    kind.
    """

    name: str
    kind: Kind
    value: Any
    array: bool = False


class _KeyMapping(Record):
    """A config key and how GGUF expresses it: by metadata keys, or by which tensors exist.

    Without `read`, the value is that of the first metadata key, or whether one of the tensors
    exists.
    """

    config: str  # the name that most families use
    gguf: tuple[str, ...] = ()  # without the architecture's prefix
    kind: Kind = UINT32
    tensors: tuple[str, ...] = ()
    read: Callable[[GGUFHeader], Any] | None = None  # where reading takes more than one key

    def read_from(self, header: GGUFHeader) -> Any:
        """Return the value in a header; None if the header does not state it."""
        if self.read is not None:
            return self.read(header)
        if self.tensors:
            return header.has_tensor(*self.tensors)
        return _READERS[self.kind](header, self.gguf[0])


_READERS: Mapping[Kind, Callable[[GGUFHeader, str], Any]] = {
    UINT32: GGUFHeader.uniform_integer,
    FLOAT32: GGUFHeader.real,
    BOOL: GGUFHeader.boolean,
    STRING: GGUFHeader.string,
}


def _attention_heads_kv(h: GGUFHeader) -> int | None:
    """Return the number of key/value heads of the layers that have any; absent, it is the number
    of query heads.
    """
    counts = sorted(set(h.per_layer("attention.head_count_kv") or ()) - {0})
    if len(counts) > 1:
        raise h.not_uniform("attention.head_count_kv", counts)
    return counts[0] if counts else h.uniform_integer("attention.head_count")


def fused_attention_heads_kv(h: GGUFHeader) -> int | None:
    """Return the number of key/value heads by the rows of `attn_qkv`: converters of such models
    have written other numbers.
    """
    rows, heads, width = (
        h.rows(".attn_qkv.weight"),
        h.required("attention.head_count"),
        h.required("embedding_length"),
    )
    stated = _attention_heads_kv(h)
    if (
        not rows
        or not heads
        or not (size := width // heads)
        or rows % size
        or (rows // size - heads) % 2
        or rows // size <= heads
    ):
        return stated
    heads_kv = (rows // size - heads) // 2
    if heads_kv != stated:
        h.notes.append(
            f"attention.head_count_kv is {stated}, but attn_qkv has {rows:,} rows, "
            f"which is {heads_kv}: using {heads_kv}"
        )
    return heads_kv


def head_dim(h: GGUFHeader) -> int | None:
    """Return the size of a head; absent, it is the embedding length divided by the number of
    heads.
    """
    key, value = (
        h.uniform_integer("attention.key_length"),
        h.uniform_integer("attention.value_length"),
    )
    width, heads = h.required("embedding_length"), h.required("attention.head_count")
    default = width // heads if heads and width % heads == 0 else None
    key, value = key or default or value, value or default or key
    if key != value:
        raise h.unsupported(f"keys of {key} and values of {value} dimensions")
    return key


def rotary_dim(h: GGUFHeader) -> int | None:
    """Return the number of rotary dimensions of a head; absent, it is all of them."""
    return h.uniform_integer("rope.dimension_count") or head_dim(h)


def rms_norm_eps(h: GGUFHeader) -> float | None:
    """Return the epsilon of the norms: converters have written either key for an RMS norm."""
    rms, layer = h.real("attention.layer_norm_rms_epsilon"), h.real("attention.layer_norm_epsilon")
    return layer if rms is None else rms


def _partial_rotary_factor(h: GGUFHeader) -> float | None:
    """Return the rotary share of a head, such that rounding down gives the number of dimensions
    back.
    """
    rotary, size = rotary_dim(h), head_dim(h)
    if not rotary or not size:
        return None
    share = rotary / size
    return share if int(size * share) == rotary else nextafter(share, 2.0)


def _layer_norm_eps(h: GGUFHeader) -> float | None:
    stated = h.get("attention.layer_norm_epsilon") is not None
    return h.real("attention.layer_norm_epsilon") if stated else rms_norm_eps(h)


def _vocab_size(h: GGUFHeader) -> int | None:
    """Return the size of the vocabulary that is stated, or of the token list; if they differ,
    the one that the embedding matches.
    """
    tokens = h.metadata.get("tokenizer.ggml.tokens")
    stated = [
        x
        for x in (
            h.uniform_integer("vocab_size"),
            tokens.count if isinstance(tokens, Array) else None,
        )
        if x
    ]
    rows = h.rows("token_embd.weight")
    if stated and rows and rows != stated[0]:
        h.notes.append(
            "the header states a vocabulary of "
            f"{' and '.join(f'{x:,}' for x in stated)}; token_embd.weight has {rows:,} rows"
        )
    return rows if rows in stated or not stated else stated[0]


def sliding_layer_types(h: GGUFHeader) -> list[str] | None:
    """Return the layer types, from a list of sliding windows or from a period whose last layer
    has full attention.
    """
    pattern = h.get("attention.sliding_window_pattern")
    if pattern is None:
        return None
    if type(pattern) is int:
        sliding = [pattern == 0 or i % pattern < pattern - 1 for i in range(h.layers)]
    else:
        sliding = h.array("attention.sliding_window_pattern")[: h.layers]
    return ["sliding_attention" if x else "full_attention" for x in sliding]


def _delta_layer_types(h: GGUFHeader) -> list[str]:
    """Return the layer types, full or linear attention, by the tensors of each layer."""
    return ["full_attention" if x else "linear_attention" for x in h.layers_with(".attn_q.weight")]


def _conv_layer_types(h: GGUFHeader) -> list[str]:
    """Return the layer types, short convolution or attention, by the tensors of each layer."""
    return ["conv" if x else "full_attention" for x in h.layers_with(".shortconv.conv.weight")]


def _dense_layers(h: GGUFHeader) -> list[int] | None:
    """Return the layers without experts of a model whose other layers have experts."""
    return [
        i for i, sparse in enumerate(h.layers_with(".ffn_gate_inp.weight")) if not sparse
    ] or None


def _moe_layers(h: GGUFHeader) -> list[int] | None:
    """Return the layers with experts, unless they are every n-th layer."""
    layers = [i for i, x in enumerate(h.layers_with(".ffn_gate_inp.weight")) if x]
    step = h.uniform_integer("interleave_moe_layer_step") or 1
    return None if layers == list(range(step - 1, h.layers, step)) else layers


def _qk_nope_head_dim(h: GGUFHeader) -> int | None:
    """Return the dimensions of an MLA key that are not rotary; files from before April 2025 have
    no key of their own for this.
    """
    size = h.uniform_integer("attention.key_length_mla") or h.uniform_integer(
        "attention.key_length"
    )
    rotary = h.uniform_integer("rope.dimension_count")
    return size - rotary if size and rotary and size > rotary else None


def _topk_method(h: GGUFHeader) -> str:
    """Return the method by which DeepSeek's router selects experts: with a learned bias, within
    groups, or among all.
    """
    if h.has_tensor(".exp_probs_b.bias"):
        return "noaux_tc"
    return (
        "group_limited_greedy" if (h.uniform_integer("expert_group_count") or 1) > 1 else "greedy"
    )


def _scoring_func(h: GGUFHeader) -> str:
    """Return the router's function by llama.cpp's numbers: 1 softmax, 2 sigmoid; absent, it is
    softmax.
    """
    return "sigmoid" if h.uniform_integer("expert_gating_func") == 2 else "softmax"


def _linear_value_head_dim(h: GGUFHeader) -> int | None:
    inner, heads = h.uniform_integer("ssm.inner_size"), h.uniform_integer("ssm.time_step_rank")
    return inner // heads if inner and heads and inner % heads == 0 else None


def _count(config: str, *gguf: str, read: Callable[[GGUFHeader], Any] | None = None) -> _KeyMapping:
    return _KeyMapping(config=config, gguf=gguf, read=read)


def _real(config: str, *gguf: str, read: Callable[[GGUFHeader], Any] | None = None) -> _KeyMapping:
    return _KeyMapping(config=config, gguf=gguf, kind=FLOAT32, read=read)


def _tensor(config: str, *tensors: str) -> _KeyMapping:
    return _KeyMapping(config=config, tensors=tensors)


def _computed(config: str, read: Callable[[GGUFHeader], Any]) -> _KeyMapping:
    return _KeyMapping(config=config, read=read)


ROPE_SCALING = (
    _real("factor", "rope.scaling.factor"),
    _count("original_max_position_embeddings", "rope.scaling.original_context_length"),
    _real("beta_fast", "rope.scaling.yarn_beta_fast"),
    _real("beta_slow", "rope.scaling.yarn_beta_slow"),
    _real("attention_factor", "rope.scaling.yarn_attn_factor"),
)
"""The keys inside `rope_scaling`."""

_TABLE = (
    # sizes
    _count("num_hidden_layers", "block_count", read=lambda h: h.layers),
    _count("max_position_embeddings", "context_length"),
    _count("hidden_size", "embedding_length"),
    _count("intermediate_size", "feed_forward_length"),
    _count("vocab_size", "vocab_size", read=_vocab_size),
    _computed("tie_word_embeddings", lambda h: not h.has_tensor("output.weight")),
    # attention
    _count("num_attention_heads", "attention.head_count"),
    _count("num_key_value_heads", "attention.head_count_kv", read=_attention_heads_kv),
    _count("head_dim", "attention.key_length", "attention.value_length", read=head_dim),
    _count(
        "sliding_window",
        "attention.sliding_window",
        read=lambda h: h.uniform_integer("attention.sliding_window") or None,
    ),
    _computed("sliding_layer_types", sliding_layer_types),
    _computed("bidirectional", lambda h: True if h.boolean("attention.causal") is False else None),
    _real("attn_logit_softcapping", "attn_logit_softcapping"),
    _real("clip_qkv", "attention.clamp_kqv"),
    _count("num_kv_shared_layers", "attention.shared_kv_layers"),
    _tensor("attention_bias", ".attn_q.bias", ".attn_qkv.bias"),
    _tensor("use_qk_norm", ".attn_q_norm.weight"),
    _computed("no_bias", lambda h: not h.has_tensor(".attn_output.bias")),
    # multi-head latent attention
    _count("q_lora_rank", "attention.q_lora_rank"),
    _count("kv_lora_rank", "attention.kv_lora_rank"),
    _computed("qk_nope_head_dim", _qk_nope_head_dim),
    _count("qk_rope_head_dim", "rope.dimension_count"),
    _computed(
        "v_head_dim",
        lambda h: (
            h.uniform_integer("attention.value_length_mla")
            or h.uniform_integer("attention.value_length")
        ),
    ),
    _tensor("mla_bias", ".attn_kv_a_mqa.bias"),
    # rotary positions; `rope_scaling` is read and written by gguf_rope.py
    _count("rotary_dim", "rope.dimension_count", read=rotary_dim),
    _computed("partial_rotary_factor", _partial_rotary_factor),
    # llama.cpp's default
    _real("rope_theta", "rope.freq_base", read=lambda h: h.real("rope.freq_base") or 10000.0),
    _real("rope_local_base_freq", "rope.freq_base_swa"),
    # feed-forward layers and experts
    _tensor("mlp_bias", ".ffn_gate.bias", ".ffn_up.bias", ".ffn_up_shexp.bias"),
    _computed("no_mlp_norm", lambda h: not h.has_tensor(".ffn_norm.weight")),
    _KeyMapping(config="use_parallel_residual", gguf=("use_parallel_residual",), kind=BOOL),
    _count("num_experts", "expert_count"),
    _count("num_experts_per_tok", "expert_used_count"),
    _count("moe_intermediate_size", "expert_feed_forward_length"),
    _count("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    _count("n_shared_experts", "expert_shared_count"),
    _count("moe_latent_size", "moe_latent_size"),
    _count("first_k_dense_replace", "leading_dense_block_count"),
    _count("num_nextn_predict_layers", "nextn_predict_layers"),
    _count("interleave_moe_layer_step", "interleave_moe_layer_step"),
    _computed("dense_layers", _dense_layers),
    _computed("moe_layers", _moe_layers),
    _count(
        "n_group", "expert_group_count", read=lambda h: h.uniform_integer("expert_group_count") or 1
    ),
    _count(
        "topk_group",
        "expert_group_used_count",
        read=lambda h: h.uniform_integer("expert_group_used_count") or 1,
    ),
    _computed("topk_method", _topk_method),
    _computed("scoring_func", _scoring_func),
    _computed("norm_topk_prob", lambda h: h.boolean("expert_weights_norm") or False),
    _real(
        "routed_scaling_factor",
        "expert_weights_scale",
        read=lambda h: h.real("expert_weights_scale") or 1.0,
    ),
    _tensor("use_routing_bias", ".exp_probs_b.bias"),
    # recurrent and convolutional layers
    _computed("delta_layer_types", _delta_layer_types),
    _count("linear_conv_kernel_dim", "ssm.conv_kernel"),
    _count("linear_key_head_dim", "ssm.state_size"),
    _count("linear_num_key_heads", "ssm.group_count"),
    _count("linear_num_value_heads", "ssm.time_step_rank"),
    _computed("linear_value_head_dim", _linear_value_head_dim),
    _computed("conv_layer_types", _conv_layer_types),
    _count("conv_L_cache", "shortconv.l_cache"),
    _tensor("conv_bias", ".shortconv.conv.bias"),
    # norms, scales and the head
    _real("rms_norm_eps", "attention.layer_norm_rms_epsilon", read=rms_norm_eps),
    _real("layer_norm_eps", "attention.layer_norm_epsilon", read=_layer_norm_eps),
    _real("attention_multiplier", "attention.scale"),
    _real("embedding_multiplier", "embedding_scale"),
    _real("residual_multiplier", "residual_scale"),
    _real("logit_scale", "logit_scale"),
    _real("final_logit_softcapping", "final_logit_softcapping"),
    _tensor("lm_head_bias", "output.bias"),
)

KEY_MAPPINGS: Mapping[str, _KeyMapping] = {x.config: x for x in _TABLE}
"""Config key → its expression in GGUF. Names that are no config keys of any family are values
that families read under other names."""
