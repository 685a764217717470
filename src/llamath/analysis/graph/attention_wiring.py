"""How the heads' outputs enter the output projection, next to a well-known mistake.

The mistaken count multiplies 32 heads × 766 × 2,048 positions × 4,096, 205 billion parameters for a 7B model.
"""

from __future__ import annotations

from ...core.blocks import Attention, Decoder, LatentAttention
from ...core.expr import Dim, product
from ...core.mixers import RecurrentMixer
from ...core.record_type import Record
from ...core.tree import Weight, fold_blocks

MISTAKEN_PRODUCT = 32 * 766 * 2048 * 4096
"""The mistaken product."""


class AttentionWiring(Record):
    """The heads of a model's first attention layer, and its output projection."""

    heads: Dim
    joined: Dim  # elements of all heads for one token
    matrix: Weight
    width: Dim
    context: int | None
    learned: Weight | None  # learned position embeddings, the only weight that depends on the context length
    states: bool  # whether recurrent states mix tokens, too

    @property
    def mistaken_size(self) -> Dim | None:
        """Heads × width × context × width: the size if all positions of full-width heads entered one dense layer at once."""
        return None if self.context is None else product((self.heads, self.width, Dim("context", self.context), self.width))


def attention_wiring(tree: Decoder) -> AttentionWiring | None:
    """Return the wiring of the first attention layer; None for a model without attention."""
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
