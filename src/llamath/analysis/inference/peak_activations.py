"""`peak`: what a plain forward pass holds of its tokens besides weights and cache, at its widest.

The pass meant is that of transformers' Llama with flash attention, layer after layer, nothing kept for a backward pass. While a branch
of a layer works, four rows of the model's width are held for each token: the embeddings, the layer's input, the residual stream and the
normed copy of it; and of the branch what each of its linear maps gives but the last, and what that last one reads. The experts of a
mixture read copies of their tokens. Tables of cosines and masks are left out, and norms and rotations count as done in place. Other
implementations hold less (a fused gate) or more (activation functions in many steps, attention that is not a flash kernel's).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.blocks import Decoder, Linear, MoE
from ...core.expr import Dim, product, total
from ...core.record_type import Record
from ...core.tree import Block, Stack


class PeakActivations(Record):
    """Numbers held for each token where most are held, and which branch that is."""

    width: Dim
    branch: str


def peak_activations(tree: Decoder) -> PeakActivations:
    """The widest branch of the widest layer."""
    d = Dim.const(tree.width)
    found = [PeakActivations(width=total((4 * d, inner)), branch=name) for name, inner in _branches(tree.layers)]
    return max(found, key=lambda x: int(x.width), default=PeakActivations(width=d, branch="embed"))


def _branches(layers: Stack) -> Iterator[tuple[str, Dim]]:
    for layer, _ in layers.distinct():
        for name, child in layer.children:
            if isinstance(child, Block):
                yield name, branch_activations(child)


def branch_activations(block: Block) -> Dim:
    """What a branch holds for each token besides the rows of the model's width."""
    if isinstance(block, MoE):
        return _mixture(block)
    linears = list(_linears(block))
    if not linears:
        return Dim.const(0)
    last = linears[-1].weight.shape
    return total((*(x.weight.shape[0] for x in linears[:-1]), last[1]))


def _mixture(block: MoE) -> Dim:
    """The tokens' copies with what the experts make of them, or what the shared expert makes of the tokens, whichever is more."""
    live = block.experts.active or 1
    ((expert, _), *_) = block.experts.distinct()
    reads = next(_linears(expert)).weight.shape[1]
    routed = total((product((live, total((reads, branch_activations(expert))))), block.router.weight.shape[0]))
    shared = branch_activations(block.shared) if block.shared is not None else Dim.const(0)
    return routed if routed >= shared else shared


def _linears(block: Block) -> Iterator[Linear]:
    for _, child in block.children:
        if isinstance(child, Linear):
            yield child
        elif isinstance(child, Block) and not isinstance(child, MoE):
            yield from _linears(child)
