"""The table of GGUF metadata keys and Hugging Face config keys: a row reads a header, and writes
what a model's tree has.

The meanings are those that llama.cpp gives its keys (`load_hparams` in src/llama-model.cpp and
src/models/), and how its converters write them (conversion/ in the same repository). Counts are
written as UINT32 and other numbers as FLOAT32, as the gguf package does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nextafter
from typing import Any, NamedTuple

from ...core.blocks import Attention, MoE
from ...core.latent_attention import LatentAttention
from ...core.mixers import GatedDeltaNet
from ...utils.errors import ConvertError
from ...utils.record_type import Record
from ..formats.gguf import BOOL, FLOAT32, STRING, UINT32, Array, Kind
from .gguf_facts import (
    GGUFFacts,
    Keys,
    expert_width,
    feed_forward_length,
    mlp_width,
    rotary_dim_keys,
    uniform,
)
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
    exists. `value` is that of the first metadata key in a tree, `write` are several keys; without
    either, the tensors tell it.
    """

    config: str  # the name that most families use
    gguf: tuple[str, ...] = ()  # without the architecture's prefix
    kind: Kind = UINT32
    tensors: tuple[str, ...] = ()
    read: Callable[[GGUFHeader], Any] | None = None  # where reading takes more than one key
    value: Callable[[GGUFFacts], Any] | None = None
    write: Callable[[GGUFFacts], Keys] | None = None

    def read_from(self, header: GGUFHeader) -> Any:
        """Return the value in a header; None if the header does not state it."""
        if self.read is not None:
            return self.read(header)
        if self.tensors:
            return header.has_tensor(*self.tensors)
        return _READERS[self.kind](header, self.gguf[0])

    def metadata_of(self, facts: GGUFFacts) -> Keys:
        """Return the metadata that express the key in a model's file."""
        if self.write is not None:
            return self.write(facts)
        return {} if self.value is None else {self.gguf[0]: self.value(facts)}


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


def _window(h: GGUFHeader) -> int | None:
    return h.uniform_integer("attention.sliding_window") or None


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


def _heads_kv(f: GGUFFacts) -> Any:
    if isinstance(f.first_attention, LatentAttention):
        return 1
    if any(isinstance(x.attn, GatedDeltaNet) for x in f.layers):
        return int(f.first.kv_heads)
    return uniform(0 if not isinstance(x, Attention) else int(x.kv_heads) for x in f.attentions)


def _head_dim_keys(f: GGUFFacts) -> Keys:
    is_default = int(f.first.head_dim) * int(f.first.heads) == int(f.tree.width)
    return {} if "head_dim" not in f.config.data and is_default else _stated_head_dim_keys(f)


def _stated_head_dim_keys(f: GGUFFacts) -> Keys:
    return dict.fromkeys(("attention.key_length", "attention.value_length"), int(f.first.head_dim))


def window_keys(f: GGUFFacts) -> Keys:
    """Return the size of the window of layers that have one."""
    sizes = {x.window.size for x in f.attentions if x is not None and x.window.size is not None}
    if not sizes:
        return {}
    stated = f.resolved("sliding_window")  # with attention to both sides, the tree has another size
    return {
        "attention.sliding_window": int(min(sizes))
        if f.first.window.causal or type(stated) is not int
        else stated
    }


def windows_of_layers_keys(f: GGUFFacts) -> Keys:
    """Return the list of layers with a window, where the architecture has no order of its own."""
    has_window = [x is not None and x.window.size is not None for x in f.attentions]
    return {"attention.sliding_window_pattern": has_window} if any(has_window) else {}


def _latent_keys(f: GGUFFacts) -> Keys:
    rank, rotary = int(f.latent.kv_lora_rank), int(f.latent.rope_dim)
    return {
        "attention.head_count_kv": 1,
        "attention.key_length": rank + rotary,
        "attention.value_length": rank,
        "attention.key_length_mla": int(f.latent.nope_dim) + rotary,
        "attention.value_length_mla": int(f.latent.v_dim),
    }


def _expert_group_keys(f: GGUFFacts) -> Keys:
    groups = f.moe.expert_groups if f.moe is not None else None
    if groups is None:
        n = f.resolved("n_group")
        return {"expert_group_count": 1, "expert_group_used_count": 1} if n == 1 else {}
    return {"expert_group_count": int(groups[0]), "expert_group_used_count": int(groups[1])}


def _shared_experts(f: GGUFFacts) -> int | None:
    if f.moe is None:
        return None
    shared, width = f.moe.shared, expert_width(f) or 1
    return mlp_width(shared) // width if shared is not None else 0


def _leading_dense_layers(f: GGUFFacts) -> int:
    return next((i for i, x in enumerate(f.mlps) if isinstance(x, MoE)), len(f.mlps))


def _parallel_keys(f: GGUFFacts) -> Keys:
    return {"use_parallel_residual": bool(f.layers[0].parallel)}


def _delta_net_keys(f: GGUFFacts) -> Keys:
    """Return the sizes of the gated delta net, and the interval of layers with full attention,
    which llama.cpp requires.
    """
    mixer = f.mixer(GatedDeltaNet)
    assert mixer.conv is not None
    full = [i for i, x in enumerate(f.attentions) if x is not None]
    interval = full[0] + 1 if full else len(f.layers) + 1
    if full != list(range(interval - 1, len(f.layers), interval)):
        raise ConvertError(
            f"llama.cpp's {f.arch} has full attention in every n-th layer, "
            f"and this model in others ({full[:8]})"
        )
    return {
        "ssm.conv_kernel": int(mixer.conv.weight.shape[-1]),
        "ssm.state_size": int(mixer.key_dim),
        "ssm.group_count": int(mixer.key_heads),
        "ssm.time_step_rank": int(mixer.value_heads),
        "ssm.inner_size": int(mixer.value_heads) * int(mixer.value_dim),
        "full_attention_interval": interval,
        **rotary_dim_keys(f),
    }


def _count(config: str, *gguf: str, **ways: Any) -> _KeyMapping:
    return _KeyMapping(config=config, gguf=gguf, **ways)


def _real(config: str, *gguf: str, **ways: Any) -> _KeyMapping:
    return _KeyMapping(config=config, gguf=gguf, kind=FLOAT32, **ways)


def _tensor(config: str, *tensors: str) -> _KeyMapping:
    return _KeyMapping(config=config, tensors=tensors)


def _computed(config: str, read: Callable[[GGUFHeader], Any], **ways: Any) -> _KeyMapping:
    return _KeyMapping(config=config, read=read, **ways)


def _of_moe(value: Callable[[Any], Any]) -> Callable[[GGUFFacts], Any]:
    return lambda f: None if f.moe is None else value(f.moe)


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
    _count(
        "num_hidden_layers", "block_count", read=lambda h: h.layers, value=lambda f: len(f.layers)
    ),
    _count(
        "max_position_embeddings",
        "context_length",
        value=lambda f: None if f.tree.context is None else int(f.tree.context),
    ),
    _count("hidden_size", "embedding_length", value=lambda f: int(f.tree.width)),
    _count("intermediate_size", "feed_forward_length", value=feed_forward_length),
    _count("vocab_size", "vocab_size", read=_vocab_size, value=lambda f: int(f.tree.vocab)),
    _computed("tie_word_embeddings", lambda h: not h.has_tensor("output.weight")),
    # attention
    _count("num_attention_heads", "attention.head_count", value=lambda f: int(f.first.heads)),
    _count(
        "num_key_value_heads", "attention.head_count_kv", read=_attention_heads_kv, value=_heads_kv
    ),
    _count(
        "head_dim",
        "attention.key_length",
        "attention.value_length",
        read=head_dim,
        write=_head_dim_keys,
    ),
    _computed("stated_head_dim", head_dim, write=_stated_head_dim_keys),
    _count("sliding_window", "attention.sliding_window", read=_window, write=window_keys),
    # llama.cpp computes full attention whatever the file says
    _computed("window_without_effect", _window),
    _computed("sliding_layer_types", sliding_layer_types),
    _computed(
        "bidirectional",
        lambda h: True if h.boolean("attention.causal") is False else None,
        write=lambda f: {} if f.first.window.causal else {"attention.causal": False},
    ),
    _real(
        "attn_logit_softcapping",
        "attn_logit_softcapping",
        value=lambda f: f.first.score_transform.softcap,
    ),
    _real("clip_qkv", "attention.clamp_kqv"),
    _tensor("attention_bias", ".attn_q.bias", ".attn_qkv.bias"),
    _tensor("use_qk_norm", ".attn_q_norm.weight"),
    _computed("no_bias", lambda h: not h.has_tensor(".attn_output.bias")),
    # multi-head latent attention
    _count(
        "q_lora_rank",
        "attention.q_lora_rank",
        value=lambda f: f.latent.q_down and int(f.latent.q_down.weight.shape[0]),
    ),
    _count("kv_lora_rank", "attention.kv_lora_rank", value=lambda f: int(f.latent.kv_lora_rank)),
    _computed("qk_nope_head_dim", _qk_nope_head_dim, write=_latent_keys),
    _count("qk_rope_head_dim", "rope.dimension_count", value=lambda f: int(f.latent.rope_dim)),
    _computed(
        "v_head_dim",
        lambda h: (
            h.uniform_integer("attention.value_length_mla")
            or h.uniform_integer("attention.value_length")
        ),
    ),
    _tensor("mla_bias", ".attn_kv_a_mqa.bias"),
    # rotary positions; `rope_scaling` is read and written by gguf_rope.py
    _count("rotary_dim", "rope.dimension_count", read=rotary_dim, write=rotary_dim_keys),
    _computed("partial_rotary_factor", _partial_rotary_factor, write=rotary_dim_keys),
    _real(
        "rope_theta",
        "rope.freq_base",
        read=lambda h: h.real("rope.freq_base") or 10000.0,  # llama.cpp's default
        write=lambda f: {
            **({"rope.freq_base": f.rope.theta} if f.rope is not None else {}),
            **rotary_dim_keys(f),
        },
    ),
    _real(
        "rope_local_base_freq",
        "rope.freq_base_swa",
        value=lambda f: f.sliding_rope and f.sliding_rope.theta,
    ),
    # feed-forward layers and experts
    _tensor("mlp_bias", ".ffn_gate.bias", ".ffn_up.bias", ".ffn_up_shexp.bias"),
    _computed("no_mlp_norm", lambda h: not h.has_tensor(".ffn_norm.weight"), write=_parallel_keys),
    _KeyMapping(
        config="use_parallel_residual",
        gguf=("use_parallel_residual",),
        kind=BOOL,
        write=_parallel_keys,
    ),
    _count("num_experts", "expert_count", value=_of_moe(lambda x: len(x.experts))),
    _count("num_experts_per_tok", "expert_used_count", value=_of_moe(lambda x: int(x.top_k))),
    _count("moe_intermediate_size", "expert_feed_forward_length", value=expert_width),
    _count(
        "shared_expert_intermediate_size",
        "expert_shared_feed_forward_length",
        value=_of_moe(lambda x: x.shared and mlp_width(x.shared)),
    ),
    _count("n_shared_experts", "expert_shared_count", value=_shared_experts),
    _count(
        "moe_latent_size",
        "moe_latent_size",
        value=_of_moe(
            lambda x: int(x.latent_down.weight.shape[0]) if hasattr(x, "latent_down") else None
        ),
    ),
    _count("first_k_dense_replace", "leading_dense_block_count", value=_leading_dense_layers),
    _count("num_nextn_predict_layers", "nextn_predict_layers"),
    _count(
        "interleave_moe_layer_step",
        "interleave_moe_layer_step",
        value=lambda f: f.resolved("interleave_moe_layer_step"),
    ),
    _computed("dense_layers", _dense_layers),
    _computed("moe_layers", _moe_layers),
    _count(
        "n_group",
        "expert_group_count",
        read=lambda h: h.uniform_integer("expert_group_count") or 1,
        write=_expert_group_keys,
    ),
    _count(
        "topk_group",
        "expert_group_used_count",
        read=lambda h: h.uniform_integer("expert_group_used_count") or 1,
    ),
    _computed("topk_method", _topk_method),
    _count(
        "scoring_func",
        "expert_gating_func",
        read=_scoring_func,
        value=_of_moe(lambda x: 2 if x.scoring == "sigmoid" else 1),
    ),
    _KeyMapping(
        config="norm_topk_prob",
        gguf=("expert_weights_norm",),
        kind=BOOL,
        read=lambda h: h.boolean("expert_weights_norm") or False,
        value=_of_moe(lambda x: bool(x.norm_topk_prob)),
    ),
    _real(
        "routed_scaling_factor",
        "expert_weights_scale",
        read=lambda h: h.real("expert_weights_scale") or 1.0,
        value=_of_moe(lambda x: float(x.routed_scaling_factor)),
    ),
    _tensor("use_routing_bias", ".exp_probs_b.bias"),
    # recurrent and convolutional layers
    _computed("delta_layer_types", _delta_layer_types),
    _count("linear_conv_kernel_dim", "ssm.conv_kernel", write=_delta_net_keys),
    _count("linear_key_head_dim", "ssm.state_size"),
    _count("linear_num_key_heads", "ssm.group_count"),
    _count("linear_num_value_heads", "ssm.time_step_rank"),
    _computed("linear_value_head_dim", _linear_value_head_dim),
    _computed("conv_layer_types", _conv_layer_types),
    _count("conv_L_cache", "shortconv.l_cache", value=lambda f: f.resolved("conv_L_cache")),
    _tensor("conv_bias", ".shortconv.conv.bias"),
    # norms, scales and the head
    _real(
        "rms_norm_eps",
        "attention.layer_norm_rms_epsilon",
        read=rms_norm_eps,
        value=lambda f: f.eps,
    ),
    _real(
        "layer_norm_eps",
        "attention.layer_norm_epsilon",
        read=_layer_norm_eps,
        value=lambda f: f.eps,
    ),
    _real(
        "attention_multiplier",
        "attention.scale",
        value=lambda f: f.first.score_transform.scale,
    ),
    _real("embedding_multiplier", "embedding_scale", value=lambda f: float(f.tree.embed.scale)),
    _real(
        "residual_multiplier",
        "residual_scale",
        value=lambda f: float(f.layers[0].residual_multiplier),
    ),
    _real("logit_scale", "logit_scale", value=lambda f: float(f.tree.logit_scale)),
    _real("final_logit_softcapping", "final_logit_softcapping", value=lambda f: f.tree.softcap),
    _tensor("lm_head_bias", "output.bias"),
)

KEY_MAPPINGS: Mapping[str, _KeyMapping] = {x.config: x for x in _TABLE}
"""Config key → its expression in GGUF. Names that are no config keys of any family are values
that families read under other names."""
