"""The FLOPs of a forward pass, counted from the tree: 2 per element of every weight matrix that a token uses, plus the mixing.

A multiply-add counts as two operations. Only matrix products and the convolutions of recurrent mixers are counted: no norms, activation
functions, softmax, rotary embeddings, gates, routing decisions or lookups. Counts are exact integers with formulas in letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

from ...core.blocks import Decoder
from ...core.expr import Expr, product, total
from ...core.forward_pass import AttentionBase, ForwardPass, Mixer
from ...core.record_type import Record
from ...core.tree import Block, Stack, fold, fold_blocks

Recompute = Literal["none", "selective", "full"]


class Flops(Record):
    """The FLOPs of a pass by group: products with weights, and the mixing of tokens (attention scores and values, recurrent states)."""

    weights: Mapping[str, Expr]
    mixing: Mapping[str, Expr]

    @property
    def total(self) -> int:
        """The total."""
        return sum(map(int, self.weights.values())) + self.mixing_total

    @property
    def mixing_total(self) -> int:
        """The FLOPs of mixing: attention scores and values, and recurrent states."""
        return sum(map(int, self.mixing.values()))

    @property
    def formula(self) -> Expr:
        """The total as a formula."""
        return total((*self.weights.values(), *self.mixing.values()))

    @property
    def by_group(self) -> Mapping[str, Mapping[str, int]]:
        """FLOPs of weights and of mixing, by group."""
        names = dict.fromkeys((*self.weights, *self.mixing))
        return {x: {"weights": int(self.weights.get(x, 0)), "mixing": int(self.mixing.get(x, 0))} for x in names}

    def of(self, group: str) -> int:
        """Return the FLOPs of a group, including mixing."""
        return int(self.weights.get(group, 0)) + int(self.mixing.get(group, 0))


class TrainingFlops(Record):
    """The FLOPs of one training step of all weights."""

    json_fields: ClassVar[tuple[str, ...]] = ("forward", "backward", "recomputed", "rescored", "hardware")

    forward: int
    backward: int  # 2 · forward: each product has a gradient product for either factor
    recomputed: int  # by activation checkpointing
    rescored: int  # QKᵀ recomputed in the backward pass of a fused attention kernel

    @property
    def model(self) -> int:
        """Model FLOPs: 3 · forward, regardless of recomputation."""
        return self.forward + self.backward

    @property
    def hardware(self) -> int:
        """Hardware FLOPs: model FLOPs and recomputation."""
        return self.model + self.recomputed + self.rescored


class MatmulFlops(NamedTuple):
    """One matrix product of a pass with all its copies: with a weight, or the mixing of a mixer."""

    pattern: str
    group: str
    mixing: bool
    flops: Expr


def list_matmuls(part: Block, at: ForwardPass, batch: int = 1) -> Iterator[MatmulFlops]:
    """Yield every distinct product of a pass through a block: products with weights in tree order, then the mixing."""
    sequences = _variable("B", batch)
    for x in fold(part):
        if x.weight.role == "matmul":
            tokens = _variable("T", 1 if at.last and x.group == "head" else at.tokens)
            yield MatmulFlops(x.pattern, x.group, False, product((2, sequences, tokens, x.active, x.weight.size)))
    for y in fold_blocks(part):
        if isinstance(y.block, Mixer) and (each := y.block.mixing_flops(at)):
            yield MatmulFlops(y.pattern, y.block.group, True, product((sequences, y.active, each)))


def forward_flops(part: Block | Stack, at: ForwardPass, batch: int = 1) -> Flops:
    """Count the FLOPs of a pass through a block or stack (the model, a layer, `tree.layers`) for `batch` sequences.

    Weights count 2 · tokens · elements for each active weight with role `matmul`: a tied head, routers, shared experts and the selected
    experts are included. Mixing is given by each mixer's `mixing_flops`, over masked or all pairs.
    """
    found: tuple[dict[str, list[Expr]], dict[str, list[Expr]]] = {}, {}
    for block, n in part.distinct() if isinstance(part, Stack) else [(part, 1)]:
        live = part.active if isinstance(part, Stack) and part.active is not None else n
        for x in list_matmuls(block, at, batch):
            found[x.mixing].setdefault(x.group, []).append(product((live, x.flops)))
    weights, mixing = ({group: total(each) for group, each in parts.items()} for parts in found)
    return Flops(weights=weights, mixing=mixing)


def train_flops(tree: Decoder, at: ForwardPass, batch: int = 1, recompute: Recompute = "none", flash: bool = False) -> TrainingFlops:
    """Count the FLOPs of a training step: forward, backward and recomputation.

    The backward pass takes exactly twice the forward pass: each of the two factors of a product gets its gradient by a product of the same
    size. This holds for the first layer, too, because the embedding is trained; the lookup itself has no product. `selective` recomputes
    the mixing (Korthikanti et al. 2022, arXiv:2205.05198, §4), `full` the layers but not the head. A fused attention kernel (`flash`)
    recomputes the scores in its backward pass (Dao et al. 2022, arXiv:2205.14135): five products instead of four.
    """
    whole = forward_flops(tree, at, batch)
    again = {"none": 0, "selective": whole.mixing_total, "full": forward_flops(tree.layers, at, batch).total if recompute == "full" else 0}
    rescored = sum(_score_flops(x.block, at) * int(x.active) for x in fold_blocks(tree)) * batch if flash else 0
    return TrainingFlops(forward=whole.total, backward=2 * whole.total, recomputed=again[recompute], rescored=rescored)


def _score_flops(block: Block, at: ForwardPass) -> int:
    """Return the FLOPs of QKᵀ."""
    return int(block.score_flops(at)) if isinstance(block, AttentionBase) else 0


def _variable(symbol: str, value: int) -> Expr:
    return Expr.const(1) if value == 1 else Expr(symbol, value)
