"""`peak_activations`: the most activations that a forward pass holds at once, besides weights and KV cache.

The pass is that of transformers' Llama with flash attention, layer after layer, without a backward pass. While a branch of a layer runs,
four rows of the model's width are held for each token: the embeddings, the layer's input, the residual stream and its normalized copy;
and of the branch, the outputs of all its linear layers but the last, and the input of that one. The experts of a mixture read copies of
their tokens. Cosine tables and masks are left out; norms and rotations count as done in place. Other implementations hold less (a fused
gate) or more (activation functions in several steps, attention without a flash kernel).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.blocks import Decoder, Linear, MoE
from ...core.expr import Dim, product, total
from ...core.record_type import Record
from ...core.tree import Block, Stack


class PeakActivations(Record):
    """The elements that are held for each token at the peak, and the branch where it occurs."""

    width: Dim
    branch: str


def peak_activations(tree: Decoder) -> PeakActivations:
    """Return the peak over all branches of all layers."""
    d = Dim.const(tree.width)
    found = [PeakActivations(width=total((4 * d, inner)), branch=name) for name, inner in _branches(tree.layers)]
    return max(found, key=lambda x: int(x.width), default=PeakActivations(width=d, branch="embed"))


def _branches(layers: Stack) -> Iterator[tuple[str, Dim]]:
    for layer, _ in layers.distinct():
        for name, child in layer.children:
            if isinstance(child, Block):
                yield name, _branch_activations(child)


def _branch_activations(block: Block) -> Dim:
    """Return the elements that a branch holds for each token besides the rows of the model's width."""
    if isinstance(block, MoE):
        return _mixture(block)
    linears = list(_linears(block))
    if not linears:
        return Dim.const(0)
    last = linears[-1].weight.shape
    return total((*(x.weight.shape[0] for x in linears[:-1]), last[1]))


def _mixture(block: MoE) -> Dim:
    """Return the elements of the token copies and of the experts, or those of the shared expert, whichever are more."""
    live = block.experts.active or 1
    ((expert, _), *_) = block.experts.distinct()
    reads = next(_linears(expert)).weight.shape[1]
    routed = total((product((live, total((reads, _branch_activations(expert))))), block.router.weight.shape[0]))
    shared = _branch_activations(block.shared) if block.shared is not None else Dim.const(0)
    return routed if routed >= shared else shared


def _linears(block: Block) -> Iterator[Linear]:
    for _, child in block.children:
        if isinstance(child, Linear):
            yield child
        elif isinstance(child, Block) and not isinstance(child, MoE):
            yield from _linears(child)
