"""Gemma 3n: several residual streams, per-layer embeddings, low-rank residuals, sparse activations,
shared keys and values.

The family is counted only: what AltUp computes is not part of the machine.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import ClassVar

from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import MLP, Attention, Decoder, Layer, Linear, Norm, PerLayerInput, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.tree import Block, Stack, Weight, counted_only, repeat
from .gemma_shared import HF_PER_LAYER, kv_layers, per_layer_embedding, per_layer_input, with_kv_of
from .layers_shared import layer_kinds, layers_from
from .registry import family
from .rope_shared import rope_of_type


class AltUpDecoder(Decoder):
    """A decoder with several residual streams: `expand` makes all but the first from the
    embeddings, `contract` joins them.
    """

    expand: Stack
    contract: Stack

    forward = counted_only("Gemma 3n's AltUp")


NAMES = HF_PER_LAYER.with_changes(
    outside={
        "expand.{l}": "model.altup_projections.{l}",
        "contract.{l}": "model.altup_unembed_projections.{l}",
    },
    inside={
        "altup.scale": "altup.correct_output_scale",
        "altup.correct": "altup.correction_coefs",
        "altup.predict": "altup.prediction_coefs",
        "altup.router": "altup.modality_router",
        "altup.router_norm": "altup.router_norm",
        "laurel.left": "laurel.linear_left",
        "laurel.right": "laurel.linear_right",
        "laurel.norm": "laurel.post_laurel_norm",
    },
)
THETAS = {"full_attention": 1e6, "sliding_attention": 1e4}


class OutlierMLP(MLP):
    """An MLP whose gate reads only what exceeds the mean by `deviations` standard deviations."""

    deviations: float

    forward = counted_only("Gemma 3n's sparse MLP")


class AltUp(Block):
    """Alternating updates (Baykal et al. 2023, arXiv:2301.13310): of several residual streams a
    layer computes one.

    The layer's input is predicted from all streams, and the difference that it makes is added to
    each, both with weights that depend on the token.
    """

    group: ClassVar[str] = "mlp"
    scale: Weight  # factors of the corrected stream that the per-layer input reads
    correct: Linear
    predict: Linear
    router: Linear
    router_norm: Norm

    forward = counted_only("Gemma 3n's AltUp")


class Laurel(Block):
    """x + norm(right(left x)), a learned low-rank residual (LAuReL, arXiv:2411.07501)."""

    group: ClassVar[str] = "mlp"
    left: Linear
    right: Linear
    norm: Norm

    forward = counted_only("Gemma 3n's low-rank residual")


class AltUpLayer(Layer):
    """A layer of a model with several residual streams and per-layer embeddings."""

    altup: AltUp
    laurel: Laurel
    per_layer: PerLayerInput

    forward = counted_only("Gemma 3n's AltUp")


@family(
    "gemma3n_text",
    hf=NAMES,
    gguf_arch="gemma3n",
    why_no_gguf="llama.cpp reads the projections of all residual streams from one tensor, and "
    "matrices are stacked here for experts alone",
    causal_class="Gemma3nForCausalLM",
)
def gemma3n(c: Config) -> Decoder:
    d, V, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size", default=262_400),
        c.dim("L", "num_hidden_layers"),
    )
    norm, p, n = (
        rms(d, _eps(c)),
        c.dim("p", "hidden_size_per_layer_input", default=256),
        c.dim("n", "altup_num_inputs", default=4),
    )
    activation, r = (
        c.activation("hidden_activation", "gelu_pytorch_tanh"),
        c.dim("r", "laurel_rank", default=64),
    )
    types = layer_kinds(
        c, L, THETAS, lambda i: "sliding_attention" if (i + 1) % 5 else "full_attention"
    )
    attention, altup = (
        {kind: _attention(c, d, kind) for kind in dict.fromkeys(types)},
        _altup(c, d, n),
    )
    laurel = Laurel(left=linear(r, d), right=linear(d, r), norm=norm)

    def layer(kind: str, kv_layer: int | None, F: int, sparsity: float) -> AltUpLayer:
        return AltUpLayer(
            attn_norm=norm,
            attn=with_kv_of(attention[kind], kv_layer),
            attn_out_norm=norm,
            mlp_norm=norm,
            mlp=_mlp(d, F, sparsity, activation),
            mlp_out_norm=norm,
            altup=altup,
            laurel=laurel,
            per_layer=per_layer_input(d, p, norm, activation),
        )

    layers = layers_from(
        layer, types, kv_layers(c, types, sharing=15), _widths(c, L), _sparsities(c, L), count_dim=L
    )
    c.ignore("altup_coef_clip", "altup_active_idx")
    tied, context, cap = (
        c.get("tie_word_embeddings", True),
        c.positive_int("max_position_embeddings"),
        c.get("final_logit_softcapping", 30.0),
    )
    embed, per_layer = embedding(V, d, scale=d**0.5), per_layer_embedding(c, d, L, p)
    plain = decoder(
        V, d, layers, norm, tied, embed=embed, per_layer=per_layer, context=context, softcap=cap
    )
    projections = repeat(linear(d, d), n - 1)
    return plain.extended(AltUpDecoder, expand=projections, contract=projections)


def _attention(c: Config, d: Expr, kind: str) -> Attention:
    """Read the attention of one type of layer, with keys and values of its own."""
    heads = c.heads(d, num_heads=8, num_kv_heads=2, head_dim=256)
    norm, scores, rope = (
        rms(heads.head_dim, _eps(c)),
        ScoreTransform(scale=1.0),
        rope_of_type(c, kind, heads.head_dim, THETAS[kind]),
    )
    window = AttentionWindow(
        size=c.get("sliding_window", 512) if kind == "sliding_attention" else None
    )
    attn = gqa(
        d,
        heads,
        c.get("attention_bias", False),
        rope=rope,
        window=window,
        q_norm=norm,
        k_norm=norm,
        score_transform=scores,
    )
    return attn.replace(v_norm=RMSNorm(eps=_eps(c)))


def _eps(c: Config) -> float:
    return c.get("rms_norm_eps", 1e-6)


def _altup(c: Config, d: Expr, n: Expr) -> AltUp:
    c.require("altup_correct_scale", True, "the published models have it")
    return AltUp(
        scale=weight(d, role="scale"),
        correct=linear(n, n),
        predict=linear(n * n, n),
        router=linear(n, d),
        router_norm=rms(d, _eps(c)),
    )


def _widths(c: Config, n: int) -> list[Expr]:
    """Read the width of the MLP: one number, or a list with one for each layer."""
    value = c["intermediate_size"]
    if not isinstance(value, list):
        F = c.dim("F", "intermediate_size")
        return [F] * int(n)
    if len(value) != n:
        raise c.error("intermediate_size", f"should be an integer or a list of {n}")
    return [Config({"F": x}, c.source).dim("F" if x == value[0] else f"F{x}", "F") for x in value]


def _sparsities(c: Config, n: int) -> list[float]:
    """Read the share of activations that each layer sets to zero."""
    if "activation_sparsity_pattern" not in c:
        return [0.95 if i < 10 < n else 0.0 for i in range(n)]
    values = c.data["activation_sparsity_pattern"]
    if (
        not isinstance(values, list)
        or len(values) != n
        or not all(type(x) in (int, float) and 0 <= x < 1 for x in values)
    ):
        raise c.error("activation_sparsity_pattern", f"should be a list of {n} numbers from 0 to 1")
    return [float(x) for x in values]


def _mlp(d: Expr, F: int, sparsity: float, activation: str) -> MLP:
    mlp = swiglu(d, F, activation)
    return mlp.extended(OutlierMLP, deviations=NormalDist().inv_cdf(sparsity)) if sparsity else mlp
