"""Rotary pairs in the order in which a checkpoint stores them.

GGUF files of llama.cpp's `llama` architecture and Meta's files store the rows of queries and keys
as interleaved pairs. Products of queries with keys do not depend on the order, so the matrices are
read where they lie, and their results are rotated in that order.
"""

from __future__ import annotations

from ..analysis.check.verify.verified_checkpoint import VerifiedCheckpoint
from ..core.blocks import Attention, AttentionBase
from ..core.tree import fold, fold_blocks
from .native_operations import Op, Rope
from .program import Program

LAYOUT = "rotary"
"""The layout of weights whose rows are interleaved pairs."""


def has_stored_pairs(checkpoint: VerifiedCheckpoint) -> bool:
    """Whether all queries and keys are stored as interleaved pairs, and nothing but the rotation
    depends on the order in a head.
    """
    tree, scheme = checkpoint.model.tree, checkpoint.scheme
    layouts = {
        scheme.layout_of(x.pattern)
        for x in fold(tree)
        if x.pattern.rpartition(".")[0].endswith((".attn.q", ".attn.k"))
    }
    mixers = [x.block for x in fold_blocks(tree) if isinstance(x.block, AttentionBase)]
    return layouts == {LAYOUT} and all(is_order_free(x) for x in mixers)


def is_order_free(mixer: AttentionBase) -> bool:
    """Whether any order of the channels in a head gives the same scores, if the rotation follows
    it.
    """
    return (
        type(mixer) is Attention
        and mixer.q_norm is None
        and mixer.k_norm is None
        and mixer.indexer is None
        and (mixer.k is None) == (mixer.v is None)
        and (
            mixer.rope is None
            or (
                mixer.rope.dim == mixer.head_dim
                and not (mixer.rope.interleaved or mixer.rope.reverse)
            )
        )
    )


def with_interleaved_pairs(program: Program) -> Program:
    """Return a program whose rotary embeddings rotate interleaved pairs."""

    def changed(op: Op) -> Op:
        return op.replace(interleaved=True) if isinstance(op, Rope) else op

    return program.replace(ops=tuple(changed(x) for x in program.ops))
