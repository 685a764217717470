"""`wiring`: how the heads' outputs meet the dense layer after them, and what it would take if all positions met it together.

The question is well known: 32 heads × 766 × 2,048 positions × 4,096 is 205 billion, for a model of seven.
"""

from __future__ import annotations

from ...core.blocks import Attention, Decoder, LatentAttention
from ...core.expr import Dim, product
from ...core.mixers import RecurrentMixer
from ...core.record_type import Record
from ...core.tree import Weight, fold_blocks

MISTAKEN_PRODUCT = 32 * 766 * 2048 * 4096
"""What was multiplied."""


class AttentionWiring(Record):
    """The heads of the first attention in a model, and the matrix that reads them."""

    heads: Dim
    joined: Dim  # numbers that all heads give for one position
    matrix: Weight
    width: Dim
    context: int | None
    learned: Weight | None  # the one weight in which the context is: a row for each position
    states: bool  # whether positions meet in states as well

    @property
    def mistaken_size(self) -> Dim | None:
        """Heads × width × context × width, as if each head gave the whole width and all positions met one dense layer."""
        return None if self.context is None else product((self.heads, self.width, Dim("context", self.context), self.width))


def attention_wiring(tree: Decoder) -> AttentionWiring | None:
    """None for a model without attention."""
    found = next((x.block for x in fold_blocks(tree) if isinstance(x.block, (Attention, LatentAttention))), None)
    if found is None:
        return None
    size = found.head_dim if isinstance(found, Attention) else found.v_dim
    heads = Dim.const(found.heads)
    return AttentionWiring(
        heads=heads,
        joined=heads * size,
        matrix=found.o.weight,
        width=Dim.const(tree.width),
        context=tree.context if tree.positions is None else int(tree.positions.weight.shape[0]) - tree.positions.offset,
        states=any(isinstance(x.block, RecurrentMixer) for x in fold_blocks(tree)),
        learned=None if tree.positions is None else tree.positions.weight,
    )
