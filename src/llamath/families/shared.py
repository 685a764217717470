"""Readers that several families share: rotary embeddings, layer types, DeepSeek's attention and experts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from ..core.attention_facts import ScoreTransform
from ..core.blocks import ExpertGroups, Layer, MoE, MTPLayer, Norm
from ..core.config import Config
from ..core.constructors import embedding, linear, rms, swiglu, unembedding, weight
from ..core.expr import Expr
from ..core.positions import DynamicRope, LinearRope, Llama3Rope, LongRope, ProportionalRope, Rope, TemperatureTuning, YarnRope
from ..core.tree import Block, Stack, Weight, cycle, repeat, sequence
from ..utils.errors import safe
from ..utils.record_type import Record

MAX_LISTED_LAYERS = 65536
"""Upper limit of layers that are listed one by one."""

if TYPE_CHECKING:
    from ..core.latent_attention import LatentAttention


def read_rope(c: Config, dim: int, theta: float = 10000.0, keys: str = "rope_theta", interleaved: bool = False) -> Rope:
    """Read the rotary embedding: `rope_theta` and `rope_scaling`, or both inside `rope_parameters` (transformers 5)."""
    s = c.sub("rope_parameters" if "rope_parameters" in c else "rope_scaling")
    return rope_from(c, s, theta=c.get(keys, theta), dim=dim, interleaved=interleaved)


def rope_from(c: Config, s: Config, *, theta: float, dim: int, interleaved: bool = False) -> Rope:
    """Read the rotary embedding that one object describes; `theta` and `dim` are the defaults."""
    theta = s.get("rope_theta", theta)
    if not theta > 0:
        raise s.error("rope_theta", f"should be positive, not {theta!r}")
    kind = s.get("rope_type|type", "default")
    if kind in ("default", "mrope"):
        s.ignore("mrope_section", "mrope_interleaved", "factor")
        return Rope(theta=theta, dim=dim, interleaved=interleaved)
    if kind == "proportional":
        rotary = 2 * int(s.get("partial_rotary_factor", 1.0) * dim // 2)
        return ProportionalRope(theta=theta, dim=rotary, interleaved=interleaved, head_dim=dim, factor=s.get("factor", 1.0))
    original = s.get("original_max_position_embeddings", c.get("original_max_position_embeddings", c.get("max_position_embeddings", 2048)))
    if kind in ("longrope", "su"):
        return LongRope(
            theta=theta,
            dim=dim,
            interleaved=interleaved,
            short_factor=s.numbers("short_factor"),
            long_factor=s.numbers("long_factor"),
            original_context=original,
            context=c.get("max_position_embeddings", original),
            factor=s.number("factor"),
            attention_factor=s.number("attention_factor"),
            mscales=(s["short_mscale"], s["long_mscale"]) if "short_mscale" in s else None,
        )
    if kind not in ("linear", "dynamic", "llama3", "yarn"):
        known = "default, linear, dynamic, yarn, llama3, longrope, proportional"
        raise s.error("rope_type", f"has the unknown type {safe(repr(kind), 60)}", f"known: {known}")
    factor = s.get("factor", 1.0) if "factor" in s else s["factor"]
    if kind == "linear":
        return LinearRope(theta=theta, dim=dim, interleaved=interleaved, factor=factor)
    if kind == "dynamic":
        return DynamicRope(theta=theta, dim=dim, interleaved=interleaved, factor=factor, original_context=original)
    if kind == "llama3":
        return Llama3Rope(
            theta=theta,
            dim=dim,
            interleaved=interleaved,
            factor=factor,
            low_freq_factor=s.get("low_freq_factor", 1.0),
            high_freq_factor=s.get("high_freq_factor", 4.0),
            original_context=original,
        )
    return YarnRope(
        theta=theta,
        dim=dim,
        interleaved=interleaved,
        factor=factor,
        original_context=original,
        beta_fast=s.get("beta_fast", 32.0),
        beta_slow=s.get("beta_slow", 1.0),
        mscale=s.number("mscale"),
        mscale_all_dim=s.number("mscale_all_dim"),
        attention_factor=s.number("attention_factor"),
        truncate=s.get("truncate", True),
    )


def layers_by_type(c: Config, n: int, kinds: Mapping[str, Block], default: Stack, key: str = "layer_types") -> Stack:
    """Return the layers in the order of `layer_types`; without that key, in the family's own order."""
    return sequence((kinds[x] for x in read_layer_types(c, n, kinds, key)), count_dim=n) if key in c else default


def layers_at(c: Config, n: int, key: str, listed: Block, other: Block) -> Stack:
    """Return n layers, of which `key` lists some by number."""
    indices: list[int] = c.get(key, [])
    if any(type(i) is not int for i in indices):
        raise c.error(key, "should list layers by number")
    boundaries = (-1, *sorted(i for i in set(indices) if 0 <= i < n), int(n))
    runs = [run for a, b in pairwise(boundaries) for run in (((other,), b - a - 1), ((listed,), 1))]
    return Stack(*runs[:-1], count_dim=n)


def read_layer_types(c: Config, n: int, kinds: Iterable[str], key: str = "layer_types") -> list[str]:
    """Read the type of each of the n layers."""
    types: list[str] = c[key]
    key = next((x for x in key.split("|") if x in c), key)
    if not isinstance(types, list) or len(types) != n:
        raise c.error(key, f"should be a list of {n} layers", f"{key}=null takes the family's own order")
    if unknown := [x for x in types if x not in list(kinds)]:
        raise c.error(key, f"has the unknown type {safe(repr(unknown[0]), 60)}", f"known: {', '.join(kinds)}")
    return types


def layer_kinds(c: Config, n: int, kinds: Iterable[str], default: Callable[[int], str], key: str = "layer_types") -> list[str]:
    """Read the type of each of the n layers; without the key, `default` names the type of layer i."""
    if key in c:
        return read_layer_types(c, n, kinds, key)
    if n > MAX_LISTED_LAYERS:
        raise c.error("num_hidden_layers", f"is {n}: too many layers to list one by one")
    return [default(i) for i in range(n)]


def alternating(c: Config, n: int, windowed: Block, full: Block, nth: int) -> Stack:
    """Return layers with a window, every nth without one, unless `layer_types` gives another order."""
    if nth < 1:
        raise c.error("sliding_window_pattern", f"should be a positive integer, not {nth}")
    return layers_by_type(c, n, {"sliding_attention": windowed, "full_attention": full}, every_nth(nth, full, windowed, n))


def every_nth(nth: int, other: Block, default: Block, n: int) -> Stack:
    """Return n layers in which every nth is `other`, stored compactly even for large numbers."""
    whole, rest = divmod(int(n), nth)
    if nth <= whole:
        return cycle((*(default,) * (nth - 1), other), n)
    return Stack(*(((default,), nth - 1), ((other,), 1)) * whole, ((default,), rest), count_dim=n) if whole else repeat(default, n)


def gemma_query_scale(c: Config) -> float:
    """Read Gemma's scale of the attention scores."""
    scalar = c.get("query_pre_attn_scalar", 256.0)
    if scalar <= 0:
        raise c.error("query_pre_attn_scalar", f"should be positive, not {scalar:g}")
    return float(scalar**-0.5)


def layers_with_late_windows(c: Config, n: int, layer: Callable[[int | None], Layer], full: int = 28) -> Stack:
    """Return Qwen's layers: with `use_sliding_window`, those from `max_window_layers` on have a window."""
    first, window = min(n, c.get("max_window_layers", full)), c.nullable("sliding_window", 4096)
    early = late = layer(None)
    order = repeat(early, n)
    if c.get("use_sliding_window", False):
        late = layer(window)
        order = Stack(((early,), first), ((late,), n - first), count_dim=n)
    return layers_by_type(c, n, {"full_attention": early, "sliding_attention": late}, order)


def rotary_dim(c: Config, h: int, default: float = 1.0, keys: str = "partial_rotary_factor") -> int:
    """Read the size of the part of a head that rotates."""
    s = c.sub("rope_parameters" if "rope_parameters" in c else "rope_scaling")
    return int(h * s.get("partial_rotary_factor", c.get(keys, default)))


def latent_attention(
    c: Config,
    d: Expr,
    rope: Rope | None,
    temperature: TemperatureTuning | None = None,
    v_dim: Expr | None = None,
    q_rank: int | None = 1536,
) -> LatentAttention:
    """Read DeepSeek's latent attention; YaRN scaling of the positions also scales the scores.

    `v_dim` is the default size of a value, and `q_rank` that of a query's latent vector; with null, queries have none.
    """
    from ..core.latent_attention import LatentSizes, mla

    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    H, n = c.dim("H", "num_attention_heads"), c.dim("n", "qk_nope_head_dim")
    p = c.dim("p", "qk_rope_head_dim")
    v = c.dim("v", "v_head_dim") if v_dim is None else c.dim("v", "v_head_dim", default=v_dim)
    null = "q_lora_rank" not in c and (q_rank is None or "q_lora_rank" in c.data)
    s = None if null else c.dim("s", "q_lora_rank", default=q_rank or 0)
    bias, scale = c.get("attention_bias", False), None
    if isinstance(rope, YarnRope) and rope.mscale_all_dim:
        scale = (n + p) ** -0.5 * (0.1 * rope.mscale_all_dim * log(max(rope.factor, 1.0)) + 1.0) ** 2
    sizes = LatentSizes(H, n, p, v, s, c.dim("r", "kv_lora_rank"))
    return mla(d, sizes, bias, rope=rope, score_transform=ScoreTransform(scale=scale, temperature=temperature))


class Routing(Record):
    """The selection of experts by a router; see `MoE`."""

    scoring: str = "softmax"
    correction: Weight | None = None
    expert_groups: ExpertGroups | None = None


def deepseek_routing(c: Config, scoring: str, method: str, n_group: int = 1, topk_group: int = 1) -> Routing:
    """Read DeepSeek's routing; its correction bias is a buffer in the reference and a tensor in files."""
    c.ignore("aux_loss_alpha", "seq_aux", "ep_size")
    n_group, topk_group, method = c.get("n_group", n_group), c.get("topk_group", topk_group), c.get("topk_method", method)
    top_scores = {"greedy": 0, "group_limited_greedy": 1, "noaux_tc": 2}.get(method)
    if top_scores is None:
        raise c.error("topk_method", f"is the unknown method {safe(repr(method), 60)}", "known: greedy, group_limited_greedy, noaux_tc")
    bias = weight(c.dim("E", "n_routed_experts"), role="bias").replace(buffer=True) if method == "noaux_tc" else None
    expert_groups = ExpertGroups(n_group, topk_group, top_scores) if top_scores and n_group > 1 else None
    return Routing(scoring=c.get("scoring_func", scoring), correction=bias, expert_groups=expert_groups)


def deepseek_moe(
    c: Config,
    d: Expr,
    routing: Routing,
    *,
    shared: int,
    norm_topk_prob: bool = True,
    routed_scaling_factor: float = 1.0,
    fp32_router: bool = False,
) -> MoE:
    """Read DeepSeek's mixture of many narrow experts; `shared` is the default number of shared experts."""
    E, k, Fe = c.dim("E", "n_routed_experts"), c.dim("k", "num_experts_per_tok"), c.dim("Fe", "moe_intermediate_size")
    S, activation = c.dim("S", "n_shared_experts", default=shared, least=0), c.activation("hidden_act")
    return MoE(
        router=linear(E, d),
        correction=routing.correction,
        experts=repeat(swiglu(d, Fe, activation), E, active=k),
        shared=swiglu(d, S * Fe, activation) if S else None,
        top_k=k,
        scoring=routing.scoring,
        norm_topk_prob=norm_topk_prob,
        routed_scaling_factor=routed_scaling_factor,
        expert_groups=routing.expert_groups,
        fp32_router=fp32_router,
    )


def dense_first(c: Config, dense: Layer, sparse: Layer, default: int) -> Stack:
    """Return `first_k_dense_replace` dense layers, then sparse ones."""
    if c.get("moe_layer_freq", 1) != 1:
        raise c.error(
            "moe_layer_freq", f"is {c['moe_layer_freq']!r}; only 1 is supported", "every layer after the first dense layers is sparse"
        )
    L = c.dim("L", "num_hidden_layers")
    first = min(int(c.dim("dense", "first_k_dense_replace", default=default, least=0)), L)
    return Stack(((dense,), first), ((sparse,), L - first))


def numbered(symbol: str, values: Iterable[int]) -> dict[int, Expr]:
    """Return a dimension for each of these values: with the letter alone if there is one, else numbered in order, like F1, F2."""
    distinct = list(dict.fromkeys(values))
    return {x: Expr(symbol if len(distinct) == 1 else f"{symbol}{i}", x) for i, x in enumerate(distinct, 1)}


def with_experts(c: Config, layers: Stack, moe: MoE, sparse: Iterable[bool]) -> Stack:
    """Return the layers with experts instead of the MLP where `sparse` says so, layer by layer."""
    if layers.n > MAX_LISTED_LAYERS:
        raise c.error("num_hidden_layers", f"is {layers.n}: too many layers to list one by one")
    with_moe = {id(x): x.replace(mlp=moe) for x, _ in layers.distinct()}
    return sequence((with_moe[id(x)] if y else x for x, y in zip(layers, sparse, strict=True)), count_dim=layers.count_dim or layers.n)


def dense_or_sparse(c: Config, dense: Layer, sparse: Layer, default: int = 1) -> Stack:
    """Return the layers in the order of `mlp_layer_types`; without that key, all but the first are sparse."""
    if "mlp_layer_types" not in c:
        return dense_first(c, dense, sparse, default)
    c.ignore("first_k_dense_replace", "moe_layer_freq")
    L, kinds = c.dim("L", "num_hidden_layers"), {"dense": dense, "sparse": sparse}
    return sequence((kinds[x] for x in read_layer_types(c, L, kinds, "mlp_layer_types")), count_dim=L)


MTP_KEYS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers")
"""Numbers of multi-token prediction layers."""


def mtp_layers(
    c: Config,
    V: Expr,
    d: Expr,
    layer: Layer,
    kind: type[MTPLayer] = MTPLayer,
    keys: str = "num_nextn_predict_layers|num_mtp_layers",
    norm: Norm | None = None,
) -> Stack | None:
    """Return DeepSeek-V3's multi-token prediction layers, each a `layer` with additional norms and projections."""
    n = c.get(keys, 0)
    if n < 0:
        raise c.error(keys.partition("|")[0], f"should not be negative, like {n}")
    norm, embed = norm or rms(d, c.get("rms_norm_eps", 1e-6)), embedding(V, d)
    mtp_layer = layer.extended(
        kind,
        embed=embed.replace(weight=embed.weight.replace(tied="embed.weight")),
        embed_norm=norm,
        hidden_norm=norm,
        join=linear(d, 2 * d),
        norm=norm,
        head=unembedding(V, d, tied=True).replace(weight=weight(V, d, tied="head.weight")),
    )
    return repeat(mtp_layer, n) if n else None


def rope_of_type(c: Config, kind: str, h: int, theta: float = 10000.0, partial: float = 1.0) -> Rope:
    """Read the rotary embedding of one type of layer, from an object for each in `rope_parameters`; theta and partial are the defaults."""
    ropes = c.sub("rope_parameters")
    if ropes.data and kind not in ropes:
        raise ropes.error(kind, "is missing", "each type of layer has its own rotary embedding")
    settings = ropes.sub(kind)
    return rope_from(c, settings, theta=theta, dim=int(h * settings.get("partial_rotary_factor", partial)))


def ints_by_layer(c: Config, key: str, n: int, default: int) -> list[int]:
    """Read a positive integer for each of the n layers."""
    if key not in c:
        return [default] * min(int(n), MAX_LISTED_LAYERS + 1)
    values: list[int] = c[key]
    if not isinstance(values, list) or len(values) != n or any(type(x) is not int or x < 1 for x in values):
        raise c.error(key, f"should be a list of {n} positive integers, one for each layer")
    return values
