"""Readers of the families with latent attention to the keys that an indexer selects:
DeepSeek-V3.2, GLM-5 and their relatives.
"""

from __future__ import annotations

from collections.abc import Callable

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Layer
from ..core.config import Config
from ..core.expr import Expr
from ..core.latent_attention import IndexedAttention, Indexer, IndexerSizes, indexer
from ..core.positions import Rope
from ..core.tree import Stack, sequence
from .deepseek_shared import latent_attention
from .layers_shared import read_layer_types

INDEXER_NAMES = {
    "attn.indexer.q": "self_attn.indexer.wq_b",
    "attn.indexer.k": "self_attn.indexer.wk",
    "attn.indexer.k_norm": "self_attn.indexer.k_norm",
    "attn.indexer.head_weights": "self_attn.indexer.weights_proj",
}
HF_INDEXED = HF_LATENT.with_changes(inside=INDEXER_NAMES)
"""Latent attention with an indexer, with the names of DeepSeek-V3.2."""


def indexed_attention(
    c: Config,
    d: Expr,
    rope: Rope,
    indexer_rope: Rope,
    *,
    heads: int,
    q_rank: int,
    eps: float = 1e-6,
    rope_last: bool = False,
) -> IndexedAttention:
    """Read latent attention with an indexer; `heads` is the default number of its heads,
    `q_rank` that of a query's latent vector.
    """
    attn = latent_attention(c, d, rope, q_rank=q_rank)
    if attn.q_down is None:
        raise c.error(
            "q_lora_rank", "is null", "the indexer reads the latent vectors of the queries"
        )
    into = c.dim("s", "q_lora_rank", default=q_rank)
    read = read_indexer(c, d, into, indexer_rope, heads=heads, eps=eps, rope_last=rope_last)
    return attn.extended(IndexedAttention, indexer=read, top_k=read.top_k)


def read_indexer(
    c: Config,
    d: Expr,
    into: Expr,
    rope: Rope | None,
    *,
    heads: int,
    eps: float = 1e-6,
    rope_last: bool = False,
) -> Indexer:
    """Read the indexer."""
    c.ignore("indexer_rope_interleave")
    Hi, hi, ki = (
        c.dim("Hi", "index_n_heads", heads),
        c.dim("hi", "index_head_dim", 128),
        c.dim("ki", "index_topk", 2048),
    )
    if rope is not None and rope.dim > hi:
        raise c.error("index_head_dim", f"is {hi}, less than the {rope.dim} channels that rotate")
    return indexer(d, into, IndexerSizes(Hi, hi, ki), eps, rope=rope, rope_last=rope_last)


def layers_with_indexers(
    c: Config, layers: Stack, default: list[str], without: Callable[[Layer], Layer]
) -> Stack:
    """Return the layers, some of which use the selection of an earlier layer: those that
    `indexer_types` calls shared.
    """
    types = (
        read_layer_types(c, len(layers), ("full", "shared"), "indexer_types")
        if "indexer_types" in c
        else default
    )
    if types[:1] == ["shared"]:
        raise c.error(
            "indexer_types",
            "begins with a shared layer",
            "no earlier layer has an indexer whose selection it could use",
        )
    if "shared" not in types:
        return layers
    shared = {id(x): without(x) for x, _ in layers.distinct() if isinstance(x, Layer)}
    return sequence(
        (x if kind == "full" else shared[id(x)] for x, kind in zip(layers, types, strict=True)),
        count_dim=layers.n,
    )


def without_indexer(layer: Layer) -> Layer:
    """Return a layer that uses the selection of an earlier one."""
    assert isinstance(layer.attn, IndexedAttention)
    return layer.replace(attn=layer.attn.replace(indexer=None))
