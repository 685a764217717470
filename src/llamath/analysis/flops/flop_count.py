"""`flops`: the floating-point operations of a pass, counted from the tree: 2 for every matrix element that a token meets, and the mixing.

A multiplication and its addition are two. Only products of matrices (and the convolution of a state mixer) are counted: no norm, no
activation function, no softmax, no rotation, no gate, no choice of experts, no look-up. Exact integers throughout, written in letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

from ...core.blocks import Decoder
from ...core.expr import Dim, product, total
from ...core.forward_pass import AttentionBase, ForwardPass, Mixer
from ...core.record_type import Record
from ...core.tree import Block, Stack, fold, fold_blocks

Recompute = Literal["none", "selective", "full"]


class Flops(Record):
    """The FLOPs of a pass by the groups of `count`: those of weights, and those of mixing, which no weight accounts for."""

    weights: Mapping[str, Dim]
    mixing: Mapping[str, Dim]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(map(int, self.weights.values())) + self.mixing_total

    @property
    def mixing_total(self) -> int:
        """Those of mixing alone: the scores and values of attention, the states of other mixers."""
        return sum(map(int, self.mixing.values()))

    @property
    def formula(self) -> Dim:
        """The total as an expression."""
        return total((*self.weights.values(), *self.mixing.values()))

    @property
    def by_group(self) -> Mapping[str, Mapping[str, int]]:
        """FLOPs of weights and of mixing, by group."""
        names = dict.fromkeys((*self.weights, *self.mixing))
        return {x: {"weights": int(self.weights.get(x, 0)), "mixing": int(self.mixing.get(x, 0))} for x in names}

    def of(self, group: str) -> int:
        """A group's, mixing included."""
        return int(self.weights.get(group, 0)) + int(self.mixing.get(group, 0))


class TrainingFlops(Record):
    """The FLOPs of one training step, all weights trained."""

    json_fields: ClassVar[tuple[str, ...]] = ("forward", "backward", "recomputed", "rescored", "hardware")

    forward: int
    backward: int  # 2 · forward: for each product one for its weight (or first factor) and one for its input (or second)
    recomputed: int  # forward again in the backward pass
    rescored: int  # QKᵀ again in the backward pass of a fused attention kernel that does not keep it

    @property
    def model(self) -> int:
        """What the model asks for, however it is run: 3 · forward."""
        return self.forward + self.backward

    @property
    def hardware(self) -> int:
        """What is really worked out."""
        return self.model + self.recomputed + self.rescored


class MatmulFlops(NamedTuple):
    """One product of a pass, all its copies together: a weight's, or the mixing of a mixer."""

    pattern: str
    group: str
    mixing: bool
    flops: Dim


def list_matmuls(part: Block, at: ForwardPass, batch: int = 1) -> Iterator[MatmulFlops]:
    """Every distinct product of a pass through a model or a part of it: those of weights in tree order, then the mixing."""
    sequences = _variable("B", batch)
    for x in fold(part):
        if x.weight.role == "matmul":
            tokens = _variable("T", 1 if at.last and x.group == "head" else at.tokens)
            yield MatmulFlops(x.pattern, x.group, False, product((2, sequences, tokens, x.active, x.weight.size)))
    for y in fold_blocks(part):
        if isinstance(y.block, Mixer) and (each := y.block.mixing_flops(at)):
            yield MatmulFlops(y.pattern, y.block.group, True, product((sequences, y.active, each)))


def forward_flops(part: Block | Stack, at: ForwardPass, batch: int = 1) -> Flops:
    """The FLOPs of a pass through a model or a part of it (a layer, `tree.layers`), for `batch` sequences.

    Weights: 2 · tokens · elements of each weight with role `matmul` that a token passes (a tied head too, of a mixture's experts the chosen
    ones, the router, shared experts). Mixing: what each mixer says of the pass, masked pairs or all of them.
    """
    found: tuple[dict[str, list[Dim]], dict[str, list[Dim]]] = {}, {}
    for block, n in part.distinct() if isinstance(part, Stack) else [(part, 1)]:
        live = part.active if isinstance(part, Stack) and part.active is not None else n
        for x in list_matmuls(block, at, batch):
            found[x.mixing].setdefault(x.group, []).append(product((live, x.flops)))
    weights, mixing = ({group: total(each) for group, each in parts.items()} for parts in found)
    return Flops(weights=weights, mixing=mixing)


def train_flops(tree: Decoder, at: ForwardPass, batch: int = 1, recompute: Recompute = "none", flash: bool = False) -> TrainingFlops:
    """The FLOPs of a training step: forward, backward, and what is worked out again.

    The backward pass is exactly twice the forward: every product has two factors, and each gets a gradient by a product of the same size.
    That holds in the first layer too, for the embeddings below it are trained; the look-up itself has no product either way. `selective`
    repeats the mixing (Korthikanti et al. 2022, arXiv:2205.05198, §4), `full` the layers, not the head. A fused attention kernel (`flash`)
    works the scores out once more on its way back (Dao et al. 2022, arXiv:2205.14135): five products in place of four.
    """
    whole = forward_flops(tree, at, batch)
    again = {"none": 0, "selective": whole.mixing_total, "full": forward_flops(tree.layers, at, batch).total if recompute == "full" else 0}
    rescored = sum(_score_flops(x.block, at) * int(x.active) for x in fold_blocks(tree)) * batch if flash else 0
    return TrainingFlops(forward=whole.total, backward=2 * whole.total, recomputed=again[recompute], rescored=rescored)


def _score_flops(block: Block, at: ForwardPass) -> int:
    """The FLOPs of QKᵀ alone."""
    return int(block.score_flops(at)) if isinstance(block, AttentionBase) else 0


def _variable(symbol: str, value: int) -> Dim:
    return Dim.const(1) if value == 1 else Dim(symbol, value)
