"""Mistral Large 4: indexed latent attention whose queries are scaled by learned logarithms of
positions, with learned rotary frequencies.

Some layers have no positions, and some read the latent vectors of an earlier one.

The family is counted only: neither scaling is part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.scheme import Scheme
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Decoder, ExpertGroups, Layer, Norm
from ..core.config import Config
from ..core.constructors import decoder, layer_norm, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.latent_attention import IndexedAttention, Indexer
from ..core.positions import Rope
from ..core.tree import Block, Cut, Weight, counted_only
from .deepseek_shared import Routing, deepseek_moe, latent_attention
from .glm_moe_dsa import indexer_types
from .indexed_shared import INDEXER_NAMES, read_indexer
from .layers_shared import check_listed, layers_from, mlp_kinds, read_layer_types
from .registry import family
from .rope_shared import rope_from


class LearnedRopeDecoder(Decoder):
    """A decoder with one learned factor for each frequency of the rotary embeddings of all
    layers.
    """

    groups: ClassVar[dict[str, str]] = {**Decoder.groups, "rope_factors": "attention"}
    rope_factors: Weight  # logarithms

    forward = counted_only("Mistral Large 4's learned rotary embedding")


_SCALES = {"scale": "ssmax_scaling.s", "bias": "ssmax_scaling.b"}
_MLP = {"gate": "w1", "up": "w3", "down": "w2"}
NAMES = Scheme(
    name="hf",
    layer="layers.{l}.",
    outside={
        "embed": "tok_embeddings",
        "norm": "norm",
        "head": "output",
        "rope_factors": "lerope.alpha",
    },
    inside={
        "attn_norm": "attention_norm",
        "attn.q": "attention.wq",
        "attn.kv_down": "attention.wkv_a_with_mqa",
        "attn.kv_norm": "attention.kv_a_norm",
        **dict.fromkeys(("attn.k_up", "attn.v_up"), "attention.wkv_b"),
        "attn.o": "attention.wo",
        **{f"attn.q_scale.{x}": f"attention.{name}" for x, name in _SCALES.items()},
        "attn.indexer.input_norm": "attention.indexer.q_input_norm",
        **{path: name.replace("self_attn.", "attention.") for path, name in INDEXER_NAMES.items()},
        **{f"attn.indexer.q_scale.{x}": f"attention.indexer.{name}" for x, name in _SCALES.items()},
        "mlp_norm": "ffn_norm",
        **{f"mlp.{x}": f"feed_forward.{name}" for x, name in _MLP.items()},
        "mlp.router": "gate",
        **{f"mlp.experts.{{e}}.{x}": f"experts.{{e}}.{name}" for x, name in _MLP.items()},
        **{f"mlp.shared.{x}": f"shared_experts.{name}" for x, name in _MLP.items()},
    },
    layouts=dict.fromkeys(("attn.k_up", "attn.v_up"), "heads"),
)
_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2048.0,
    "original_max_position_embeddings": 512, "beta_fast": 32.0,
    "beta_slow": 1.0, "attention_factor": 1.0,
}  # fmt: skip


class LogPositionScale(Block):
    """x · (scale · ln(t + 1) + bias) at position t, with numbers for each head."""

    scale: Weight
    bias: Weight

    forward = counted_only("Mistral Large 4's logarithmic scaling of queries")


class NormedIndexer(Indexer):
    """An indexer whose queries are projected from the normalized x, and scaled by their
    positions.
    """

    input_norm: Norm
    q_scale: LogPositionScale

    forward = counted_only("Mistral Large 4's indexer")


class ScaledAttention(IndexedAttention):
    """Indexed attention whose queries are scaled by their positions."""

    cuts: ClassVar[dict[str, Cut]] = {**IndexedAttention.cuts, "q_scale": Cut(0, "heads")}
    q_scale: LogPositionScale

    forward = counted_only("Mistral Large 4's logarithmic scaling of queries")


@family("mistral_large4_text", hf=NAMES)
def mistral_large4(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    check_listed(c, L)
    n, p, norm = int(L), c.dim("p", "qk_rope_head_dim"), rms(d, c.get("rms_norm_eps", 1e-5))
    c.ignore("layer_types", "head_dim", "mlp_bias", "rope_interleave", "output_router_logits")
    settings = c.sub("rope_parameters") if "rope_parameters" in c else Config(_YARN)
    rope = rope_from(c, settings, theta=10000.0, dim=p, interleaved=True)
    n_group, topk_group, factor = (
        c.get("n_group", 1),
        c.get("topk_group", 1),
        c.get("routed_scaling_factor", 1.0),
    )
    routing = Routing(
        expert_groups=ExpertGroups(n_group, topk_group, 2, 0.0) if n_group > 1 else None
    )
    moe = deepseek_moe(c, d, routing, shared=1, routed_scaling_factor=factor, fp32_router=True)
    mlp = swiglu(d, F, c.activation("hidden_act"))

    def layer(source: int | None, rotary: bool, indexer: str, kind: str) -> Layer:
        attn = _attention(c, d, rope, rotary, indexer == "full")
        if source is not None:
            attn = attn.replace(kv_down=None, kv_norm=None, kv_layer=source)
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=moe if kind == "sparse" else mlp)

    kinds = (
        read_layer_types(c, n, ("full", "shared"), "indexer_types")
        if "indexer_types" in c
        else indexer_types(c, n)
    )
    if kinds[0] == "shared":
        raise c.error(
            "indexer_types",
            "begins with a shared layer",
            "no earlier layer has an indexer whose selection it could use",
        )
    first, rotary = c.get("first_k_dense_replace", 1), _rotary_layers(c, n)
    layers = layers_from(
        layer, _sources(c, rotary), rotary, kinds, mlp_kinds(c, L, first), count_dim=L
    )
    tied, context, cap = (
        c.get("tie_word_embeddings", False),
        c.positive_int("max_position_embeddings"),
        c.get("final_logit_softcapping", 30.0),
    )
    tree = decoder(V, d, layers, norm, tied, context=context, softcap=cap)
    factors = weight(Expr("p/2", p // 2), role="scale", dtype="F32").replace(buffer=True)
    return tree.extended(LearnedRopeDecoder, rope_factors=factors)


def _attention(c: Config, d: Expr, rope: Rope, rotary: bool, full: bool) -> ScaledAttention:
    """Latent attention; without rotation all of a head is without positions."""
    attn = latent_attention(c, d, rope, q_rank=None)
    if attn.q is None:
        raise c.error("q_lora_rank", "is set", "its queries have no latent vectors")
    H, p, r, bias = (
        Expr("H", attn.heads),
        Expr("p", attn.rope_dim),
        Expr("r", attn.kv_lora_rank),
        c.get("attention_bias", False),
    )
    if not rotary:
        whole = Expr("n", attn.nope_dim) + p
        down, up = linear(r, d, bias), linear(H * whole, r)
        attn = attn.replace(
            kv_down=down, k_up=up, nope_dim=whole, rope_dim=Expr.const(0), rope=None
        )
    read = read_indexer(c, d, d, rope if rotary else None, heads=32)
    normed = layer_norm(d, 1e-6)
    indexer = (
        read.extended(
            NormedIndexer, input_norm=normed, q_scale=_log_position_scale(Expr("Hi", read.heads))
        )
        if full
        else None
    )
    scores = ScoreTransform(scale=attn.score_transform.scale)
    attn = attn.replace(kv_norm=rms(r, c.get("rms_norm_eps", 1e-5)), score_transform=scores)
    return attn.extended(
        ScaledAttention, indexer=indexer, top_k=read.top_k, q_scale=_log_position_scale(H)
    )


def _log_position_scale(heads: Expr) -> LogPositionScale:
    return LogPositionScale(scale=weight(heads, role="scale"), bias=weight(heads, role="bias"))


def _rotary_layers(c: Config, n: int) -> list[bool]:
    """Read which layers have positions: three of four, unless they are listed."""
    every = c.get("no_rope_layer_interval", 4)
    listed: object = c.get("no_rope_layers", None)
    if listed is None and every > 0:
        return [bool((i + 1) % every) for i in range(n)]
    if not isinstance(listed, list) or len(listed) < n or any(x not in (0, 1) for x in listed):
        raise c.error(
            "no_rope_layers",
            f"should be a list of {n} numbers, 1 for layers with positions and 0 for those without",
        )
    return [bool(x) for x in listed[:n]]


def _sources(c: Config, rotary: list[bool]) -> list[int | None]:
    """Read whose latent vectors each layer reads; None: its own. The class reads the nearest
    earlier layer of its kind with readers.
    """
    n, listed = len(rotary), c.get("kv_source_layers", list(range(len(rotary))))
    if len(listed) != n or any(
        type(x) is not int or not 0 <= x <= i or listed[x] != x for i, x in enumerate(listed)
    ):
        raise c.error(
            "kv_source_layers",
            f"should be a list of {n} layers, each its own or an earlier one that is its own",
        )
    read = {x for i, x in enumerate(listed) if x != i}
    for i, x in enumerate(listed):
        nearest = max((j for j in read if j < i and rotary[j] == rotary[i]), default=None)
        if x != i and x != nearest:
            raise c.error(
                "kv_source_layers",
                f"gives layer {i} the keys of layer {x}",
                "only those of the nearest such layer are known",
            )
    return [None if x == i else x for i, x in enumerate(listed)]
