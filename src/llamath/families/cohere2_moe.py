"""Cohere 2 MoE: Command A's parallel branches and windows with experts, shared ones among them, and dense layers first."""

from __future__ import annotations

from functools import cache

from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, MoE, Norm
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, linear, rms, swiglu
from ..core.expr import Expr
from ..core.tree import repeat, sequence
from ..utils.errors import safe
from .registry import family
from .shared import layer_kinds, read_rope

TYPES = ("sliding_attention", "full_attention")


@family(hf=HF)
def cohere2_moe(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, bias, norm = c.heads(d, head_dim=128), c.get("attention_bias", False), _norm(c, d)
    rope, window, prefix = read_rope(c, heads.head_dim, interleaved=True), c.nullable("sliding_window", 4096), _prefix_pattern(c)
    dense = swiglu(d, c.dim("Fd", "prefix_dense_intermediate_size", default=c.dim("F", "intermediate_size")), c.activation("hidden_act"))
    first, nth, mlps = (
        c.get("first_k_dense_replace", 0),
        c.get(any_name("sliding_window_pattern"), 4),
        {"dense": dense, "sparse": _moe(c, d)},
    )
    if nth < 1:
        raise c.error("sliding_window_pattern", f"should be a positive integer, not {nth}")

    @cache
    def layer(kind: str, mlp: str) -> Layer:
        size = window if kind == "sliding_attention" else None
        rotates = size is not None or (mlp == "dense" and prefix == 1)
        attn = gqa(d, heads, bias, rope=rope if rotates else None, window=AttentionWindow(size=size))
        return Layer(attn_norm=norm, attn=attn, mlp=mlps[mlp], parallel=True)

    def default(i: int) -> str:
        return TYPES[(i + 1) % prefix == 0 if i < first else (i - first + 1) % nth == 0]

    types = layer_kinds(c, L, TYPES, default)
    mlp_types = layer_kinds(c, L, mlps, lambda i: "dense" if i < first else "sparse", "mlp_layer_types")
    return decoder(
        V,
        d,
        sequence((layer(*x) for x in zip(types, mlp_types, strict=True)), count_dim=L),
        norm,
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
        logit_scale=c.get("logit_scale", 0.0625),
    )


def _norm(c: Config, d: Expr) -> Norm:
    eps, layer_norm_eps = c.number("rms_norm_eps"), c.get("layer_norm_eps", 1e-5)
    return layer_norm(d, layer_norm_eps, bias=False) if eps is None else rms(d, eps)


def _prefix_pattern(c: Config) -> int:
    """Read n: every nth of the first dense layers has no window; if n is 1, these layers rotate nevertheless."""
    prefix = c.get("prefix_dense_sliding_window_pattern", 1)
    if prefix < 1:
        raise c.error("prefix_dense_sliding_window_pattern", f"should be a positive integer, not {prefix}")
    return prefix


def _moe(c: Config, d: Expr) -> MoE:
    E, k, F = c.dim("E", any_name("num_experts")), c.dim("k", "num_experts_per_tok"), c.dim("F", "intermediate_size")
    S, activation = c.dim("S", "num_shared_experts", default=0, least=0), c.activation("hidden_act")
    scoring, combination = c.get("expert_selection_fn", "softmax"), c.get("shared_expert_combination_strategy", "average")
    for key, value, known in (
        ("expert_selection_fn", scoring, ("softmax", "sigmoid")),
        ("shared_expert_combination_strategy", combination, ("average", "sum")),
    ):
        if value not in known:
            raise c.error(key, f"is the unknown {safe(repr(value), 60)}", f"known: {', '.join(known)}")
    return MoE(
        router=linear(E, d),
        experts=repeat(swiglu(d, F, activation), E, active=k),
        shared=swiglu(d, S * F, activation) if S else None,
        top_k=k,
        scoring=scoring,
        norm_topk_prob=c.get("norm_topk_prob", True) or scoring == "softmax",
        output_factor=0.5 if combination == "average" else 1.0,
    )
