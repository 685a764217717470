"""Hypotheses with LoRA adapters: ranks are solved for, with the model or for the adapters alone."""

from __future__ import annotations

from collections.abc import Iterator

from .hypotheses import Hypothesis, HypothesisSpace
from .moves import Move
from .priors import MAX_RANK, RANK_BITS, rank_prior, vocab_prior

MIN_VOCAB_BITS = 7.0
"""The bits of the most likely other vocabulary size."""


def with_adapters(space: HypothesisSpace, way: Hypothesis, left: int, found: list[Move], most: int) -> Iterator[Hypothesis]:
    """Yield model plus adapters: solve for the rank, with at most one more move; or take a common rank and another vocabulary size."""
    V = space.base.vocabulary
    for x in space.adapters:
        start = way.bits + 3 + x.bits
        if start > space.bits:
            continue
        per, rest = x.per_rank + x.per_rank_row * V, left - x.whole_row * V
        if rest % per == 0 and (likely := rank_prior(rest // per)):
            yield way._replace(adapters=x, rank=rest // per, bits=start + likely.bits)
        if most < 1:
            continue
        fixed = x.whole_row or x.per_rank_row
        for move in found:
            r = rest - move.value
            if r % per == 0 and not (fixed and move.tables >= 0) and (likely := rank_prior(r // per)):
                yield way._replace(moves=(move,), adapters=x, rank=r // per, bits=start + likely.bits + move.bits)
        if start + MIN_VOCAB_BITS < space.bits:
            yield from _with_vocab(space, way._replace(adapters=x, bits=start), left, space.base.vocab_row)


def _with_vocab(space: HypothesisSpace, way: Hypothesis, left: int, row: int) -> Iterator[Hypothesis]:
    """Yield common ranks with the vocabulary size that each implies; `row` is the model's own parameters per vocabulary entry."""
    V, x = space.base.vocabulary, way.adapters
    assert x is not None
    per, rest = x.per_rank + x.per_rank_row * V, left - x.whole_row * V
    for r, bits in RANK_BITS.items():
        each = row + r * x.per_rank_row + x.whole_row
        if way.bits + bits + MIN_VOCAB_BITS > space.bits or not each:
            continue
        away = rest - r * per
        if away % each == 0 and (likely := vocab_prior(V + away // each, V, space.known_vocab_sizes)):
            yield way._replace(rank=r, vocabulary=V + away // each, bits=way.bits + bits + 3 + likely.bits)


def adapters_alone(space: HypothesisSpace, number: int) -> Iterator[Hypothesis]:
    """Yield the adapters alone, as a count of trainable parameters."""
    V = space.base.vocabulary
    if number > MAX_RANK * space.base.total:
        return
    for x in space.adapters:
        r, rest = divmod(number - x.whole_row * V, x.per_rank + x.per_rank_row * V)
        way = Hypothesis(space.base, space.base_shape, adapters=x, alone=True, bits=4 + x.bits, value=number)
        if rest == 0 and (likely := rank_prior(r)):
            yield way._replace(rank=r, bits=way.bits + likely.bits)
        yield from _with_vocab(space, way, number, 0)
