"""Gemma 3n: several residual streams, per-layer embeddings, low-rank residuals, sparse activations, shared keys and values."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import (
    MLP,
    AltUp,
    AltUpDecoder,
    AltUpLayer,
    Attention,
    Decoder,
    Laurel,
    OutlierMLP,
    PerLayerEmbedding,
    PerLayerInput,
    RMSNorm,
)
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.tree import repeat, sequence
from .registry import family
from .shared import MAX_LISTED_LAYERS, layer_kinds, rope_of_type

NAMES = HF_SANDWICH.with_changes(
    outside={
        "per_layer.embed": "model.embed_tokens_per_layer",
        "per_layer.projection": "model.per_layer_model_projection",
        "per_layer.norm": "model.per_layer_projection_norm",
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
        "per_layer.gate": "per_layer_input_gate",
        "per_layer.out": "per_layer_projection",
        "per_layer.norm": "post_per_layer_input_norm",
    },
)
THETAS = {"full_attention": 1e6, "sliding_attention": 1e4}


@family(hf=NAMES)
def gemma3n(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size", default=262_400), c.dim("L", "num_hidden_layers")
    norm, p, n = rms(d, _eps(c)), c.dim("p", "hidden_size_per_layer_input", default=256), c.dim("n", "altup_num_inputs", default=4)
    activation = c.activation("hidden_activation", "gelu_pytorch_tanh")
    types = layer_kinds(c, L, THETAS, lambda i: "sliding_attention" if (i + 1) % 5 else "full_attention")
    first_shared = L - c.get("num_kv_shared_layers", 15)
    kv_layers = {kind: i for i, kind in enumerate(types[: max(first_shared, 0)])}
    if set(kv_layers) != set(types):
        raise c.error("num_kv_shared_layers", "leaves a kind of layer without one of its own keys and values")
    r, (altup, attention) = c.dim("r", "laurel_rank", default=64), (_altup(c, d, n), _attention(c, d))
    laurel = Laurel(left=linear(r, d), right=linear(d, r), norm=norm)

    @cache
    def layer(kind: str, kv_layer: int | None, F: int, sparsity: float) -> AltUpLayer:
        rope = rope_of_type(c, kind, attention.head_dim, THETAS[kind])
        window = AttentionWindow(size=c.get("sliding_window", 512) if kind == "sliding_attention" else None)
        own = attention.replace(rope=rope, window=window)
        shared = own.replace(k=None, v=None, k_norm=None, v_norm=None, kv_layer=kv_layer)
        return AltUpLayer(
            attn_norm=norm,
            attn=own if kv_layer is None else shared,
            attn_out_norm=norm,
            mlp_norm=norm,
            mlp=_mlp(d, F, sparsity, activation),
            mlp_out_norm=norm,
            altup=altup,
            laurel=laurel,
            per_layer=PerLayerInput(gate=linear(p, d), out=linear(d, p), norm=norm, activation=activation),
        )

    facts = zip(types, _widths(c, L), _sparsities(c, L), strict=True)
    layers = sequence(
        (layer(kind, kv_layers[kind] if i >= first_shared else None, *of_mlp) for i, (kind, *of_mlp) in enumerate(facts)), count_dim=L
    )
    c.ignore("altup_coef_clip")
    plain = decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        embed=embedding(V, d, scale=d**0.5),
        per_layer=_per_layer(c, d, L, p),
        context=c.positive_int("max_position_embeddings"),
        softcap=c.get("final_logit_softcapping", 30.0),
    )
    projections = repeat(linear(d, d), n - 1)
    return plain.extended(AltUpDecoder, expand=projections, contract=projections, streams=n)


def _eps(c: Config) -> float:
    return c.get("rms_norm_eps", 1e-6)


def _altup(c: Config, d: Expr, n: Expr) -> AltUp:
    active = c.get("altup_active_idx", 0)
    if not c.get("altup_correct_scale", True):
        raise c.error("altup_correct_scale", "is false, which is not supported", "the published models have true")
    if not 0 <= active < n:
        raise c.error("altup_active_idx", f"is {active}, but there are {n} streams")
    return AltUp(
        scale=weight(d, role="scale"),
        correct=linear(n, n),
        predict=linear(n * n, n),
        router=linear(n, d),
        router_norm=rms(d, _eps(c)),
        width=d,
        streams=n,
        active=active,
    )


def _attention(c: Config, d: Expr) -> Attention:
    """Read what all layers share; their windows and positions differ."""
    heads = c.heads(d, num_heads=8, num_kv_heads=2, head_dim=256)
    norm, scores = rms(heads.head_dim, _eps(c)), ScoreTransform(scale=1.0)
    attn = gqa(d, heads, c.get("attention_bias", False), q_norm=norm, k_norm=norm, score_transform=scores)
    return attn.replace(v_norm=RMSNorm(eps=_eps(c)))


def _widths(c: Config, n: int) -> list[Expr]:
    """Read the width of the MLP: one number, or a list with one for each layer."""
    value = c["intermediate_size"]
    if not isinstance(value, list):
        F = c.dim("F", "intermediate_size")
        return [F] * min(int(n), MAX_LISTED_LAYERS)
    if len(value) != n:
        raise c.error("intermediate_size", f"should be an integer or a list of {n}")
    return [Config({"F": x}, c.source).dim("F" if x == value[0] else f"F{x}", "F") for x in value]


def _sparsities(c: Config, n: int) -> list[float]:
    """Read the share of activations that each layer sets to zero."""
    if "activation_sparsity_pattern" not in c:
        return [0.95 if i < 10 < n else 0.0 for i in range(n)]
    values = c.data["activation_sparsity_pattern"]
    if not isinstance(values, list) or len(values) != n or not all(type(x) in (int, float) and 0 <= x < 1 for x in values):
        raise c.error("activation_sparsity_pattern", f"should be a list of {n} numbers from 0 to 1")
    return [float(x) for x in values]


def _mlp(d: Expr, F: int, sparsity: float, activation: str) -> MLP:
    mlp = swiglu(d, F, activation)
    return mlp.extended(OutlierMLP, deviations=NormalDist().inv_cdf(sparsity)) if sparsity else mlp


def _per_layer(c: Config, d: Expr, L: Expr, p: Expr) -> PerLayerEmbedding:
    rows = c.dim("Vp", "vocab_size_per_layer_input", default=262_144)
    table = embedding(rows, L * p, p**0.5)
    return PerLayerEmbedding(embed=table, projection=linear(L * p, d), norm=rms(p, _eps(c)), size=p, factor=d**-0.5)
