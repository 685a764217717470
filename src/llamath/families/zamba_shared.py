"""Readers that Zamba and Zamba2 share: the kinds of layers, and the attention of shared blocks."""

from __future__ import annotations

from ..core.attention_facts import Heads, ScoreTransform
from ..core.blocks import Attention
from ..core.config import Config
from ..core.constructors import gqa, linear
from ..core.expr import Expr
from ..core.positions import Rope
from ..utils.errors import safe
from .shared import MAX_LISTED_LAYERS

_KINDS = {"mamba": "mamba", "linear_attention": "mamba", "hybrid": "hybrid"}


def hybrid_kinds(c: Config, L: int, default: list[str]) -> list[str]:
    """Read which layers have a shared block; the class takes `default` where the list is absent."""
    if L > MAX_LISTED_LAYERS:
        raise c.error("num_hidden_layers", f"is {L}: too many layers to list one by one")
    kinds: list[str] = c.get("layers_block_type|layer_types", default)
    if unknown := [x for x in kinds if x not in tuple(_KINDS)]:
        raise c.error("layers_block_type", f"has the unknown type {safe(repr(unknown[0]), 60)}", f"known: {', '.join(_KINDS)}")
    if len(kinds) != L:
        raise c.error("num_hidden_layers", f"is {L}, but there are {len(kinds)} types of layers", "layers_block_type lists them")
    c.ignore("hybrid_layer_ids")
    return [_KINDS[x] for x in kinds]


def check_tied(c: Config) -> bool:
    """Return that the head is tied; where it is not, transformers' classes do not share blocks either, which no published model does."""
    if not c.get("tie_word_embeddings", True):
        raise c.error("tie_word_embeddings", "is false: then layers share no blocks in transformers", "no published model has that")
    return True


def shared_attention(d: Expr, H: Expr, K: Expr, h: Expr, rope: Rope | None = None) -> Attention:
    """Attention that reads hidden states and embeddings, 2d wide together; scores are divided by √(h / 2)."""
    attention = gqa(d, Heads(H, K, h), rope=rope, score_transform=ScoreTransform(scale=(h / 2) ** -0.5))
    return attention.replace(q=linear(H * h, 2 * d), k=linear(K * h, 2 * d), v=linear(K * h, 2 * d))
