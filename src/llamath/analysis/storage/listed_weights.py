"""How many weights are listed one by one."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.tree import Block, Stack, fold
from ...utils.errors import LlamathError

MAX_LISTED_WEIGHTS = 2_000_000
"""More weights than this are not listed one by one; the folded table has no limit."""


def listed_weights(tree: Block) -> int:
    """Return the number of weights that a list of them one by one has."""
    return sum(int(x.copies) for x in fold(tree)) + mtp_weights(tree)


def check_listable(tree: Block) -> None:
    """Refuse to list the weights of a tree one by one if there are too many for the memory."""
    if (weights := listed_weights(tree)) > MAX_LISTED_WEIGHTS:
        hint = "the folded table counts them all exactly"
        raise LlamathError(
            f"{weights:,} weights are too many to list (at most {MAX_LISTED_WEIGHTS:,})", hint=hint
        )


def mtp_weights(tree: Block) -> int:
    """Return the number of weights in the layers for multi-token prediction."""
    stack: Stack | None = tree.mtp if isinstance(tree, Decoder) else None
    return (
        sum(int(n) * int(x.copies) for layer, n in stack.distinct() for x in fold(layer))
        if stack is not None
        else 0
    )
