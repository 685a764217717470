"""Readers that Gemma 3n and Gemma 4 share: embeddings for each layer, and layers that use the
keys and values of earlier ones.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..core.blocks import Attention, PerLayerEmbedding, PerLayerInput, RMSNorm
from ..core.config import Config
from ..core.constructors import linear, rms, side_table
from ..core.expr import Expr

HF_PER_LAYER = HF_SANDWICH.with_changes(
    outside={
        "per_layer.embed": "model.embed_tokens_per_layer",
        "per_layer.projection": "model.per_layer_model_projection",
        "per_layer.norm": "model.per_layer_projection_norm",
    },
    inside={
        "per_layer.gate": "per_layer_input_gate",
        "per_layer.out": "per_layer_projection",
        "per_layer.norm": "post_per_layer_input_norm",
    },
)


def per_layer_embedding(c: Config, d: Expr, L: Expr, p: Expr) -> PerLayerEmbedding:
    """Read the embeddings of width p for each layer."""
    rows, norm = (
        c.dim("Vp", "vocab_size_per_layer_input", default=262_144),
        rms(p, c.get("rms_norm_eps", 1e-6)),
    )
    return PerLayerEmbedding(
        embed=side_table(rows, L * p, p**0.5),
        projection=linear(L * p, d),
        norm=norm,
        size=p,
        factor=d**-0.5,
    )


def per_layer_input(d: Expr, p: Expr, norm: RMSNorm, activation: str) -> PerLayerInput:
    """Return the branch of a layer that reads them."""
    return PerLayerInput(gate=linear(p, d), out=linear(d, p), norm=norm, activation=activation)


def kv_layers(c: Config, types: list[str], sharing: int) -> list[int | None]:
    """Read whose keys and values each layer uses: the last ones (by default `sharing`) those of the
    last one of their type before them.

    None: its own.
    """
    first = len(types) - c.get("num_kv_shared_layers", sharing)
    last = {kind: i for i, kind in enumerate(types[: max(first, 0)])}
    if set(last) != set(types):
        raise c.error(
            "num_kv_shared_layers", "leaves a kind of layer without one of its own keys and values"
        )
    return [last[kind] if i >= first else None for i, kind in enumerate(types)]


def with_kv_of(attn: Attention, kv_layer: int | None) -> Attention:
    """Return attention to the keys and values of another layer; None: to its own."""
    return (
        attn
        if kv_layer is None
        else attn.replace(k=None, v=None, k_norm=None, v_norm=None, kv_layer=kv_layer)
    )


def gemma_query_scale(c: Config) -> float:
    """Read Gemma's scale of the attention scores."""
    scalar = c.get("query_pre_attn_scalar", 256.0)
    if scalar <= 0:
        raise c.error("query_pre_attn_scalar", f"should be positive, not {scalar:g}")
    return float(scalar**-0.5)
