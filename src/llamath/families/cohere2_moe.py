"""Cohere 2 MoE: Command A's parallel branches and windows with experts, shared ones among them,
and dense layers first.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, MoE, Norm
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mixture, rms, swiglu
from ..core.expr import Expr
from .layers_shared import layer_kinds, layers_from, mlp_kinds
from .registry import family
from .rope_shared import read_rope

TYPES = ("sliding_attention", "full_attention")
_NTH = any_name("sliding_window_pattern")


@family(hf=HF, causal_class="Cohere2MoeForCausalLM", renames_experts="cohere2_moe")
def cohere2_moe(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, bias, norm = c.heads(d, head_dim=128), c.get("attention_bias", False), _norm(c, d)
    rope, window = (
        read_rope(c, heads.head_dim, interleaved=True),
        c.nullable("sliding_window", 4096),
    )
    dense = swiglu(
        d,
        c.dim("Fd", "prefix_dense_intermediate_size", default=c.dim("F", "intermediate_size")),
        c.activation("hidden_act"),
    )
    mlps, first, nth = (
        {"dense": dense, "sparse": _moe(c, d)},
        c.get("first_k_dense_replace", 0),
        c.positive_int(_NTH, 4),
    )
    # nth of the dense layers; if it is 1, they rotate nevertheless
    prefix = c.positive_int("prefix_dense_sliding_window_pattern", 1)

    def layer(kind: str, mlp: str) -> Layer:
        size = window if kind == "sliding_attention" else None
        rotates = size is not None or (mlp == "dense" and prefix == 1)
        attn = gqa(
            d, heads, bias, rope=rope if rotates else None, window=AttentionWindow(size=size)
        )
        return Layer(attn_norm=norm, attn=attn, mlp=mlps[mlp], parallel=True)

    def default(i: int) -> str:
        return TYPES[(i + 1) % prefix == 0 if i < first else (i - first + 1) % nth == 0]

    types = layer_kinds(c, L, TYPES, default)
    layers = layers_from(layer, types, mlp_kinds(c, L, first), count_dim=L)
    tied, context = c.get("tie_word_embeddings", True), c.positive_int("max_position_embeddings")
    return decoder(
        V, d, layers, norm, tied, context=context, logit_scale=c.get("logit_scale", 0.0625)
    )


def _norm(c: Config, d: Expr) -> Norm:
    eps, layer_norm_eps = c.number("rms_norm_eps"), c.get("layer_norm_eps", 1e-5)
    return layer_norm(d, layer_norm_eps, bias=False) if eps is None else rms(d, eps)


def _moe(c: Config, d: Expr) -> MoE:
    E, k, F = (
        c.dim("E", any_name("num_experts")),
        c.dim("k", "num_experts_per_tok"),
        c.dim("F", "intermediate_size"),
    )
    S, activation = c.dim("S", "num_shared_experts", default=0, least=0), c.activation("hidden_act")
    scoring = c.one_of("expert_selection_fn", "softmax", "sigmoid")
    combination = c.one_of("shared_expert_combination_strategy", "average", "sum")
    norm, shared = (
        c.get("norm_topk_prob", True) or scoring == "softmax",
        swiglu(d, S * F, activation) if S else None,
    )
    moe = mixture(
        d, E, k, swiglu(d, F, activation), shared=shared, scoring=scoring, norm_topk_prob=norm
    )
    return moe.replace(output_factor=0.5 if combination == "average" else 1.0)
