"""Adapters in `explain`: ranks solved for, beside a model or alone, with its own vocabulary or another."""

from __future__ import annotations

from collections.abc import Iterator

from .hypotheses import Space, Way
from .moves import Move
from .priors import MOST_RANK, RANKS, rank, rows

LEAST_ROWS = 7.0
"""The bits of the likeliest other vocabulary, and of saying that there is one."""


def adapted(space: Space, way: Way, left: int, found: list[Move], most: int) -> Iterator[Way]:
    """Adapters beside the model: a rank that is solved for, with at most one more move; or a usual rank and another vocabulary."""
    V = space.base.vocabulary
    for x in space.adapters:
        start = way.bits + 3 + x.bits
        if start > space.bits:
            continue
        per, rest = x.per_rank + x.per_rank_row * V, left - x.whole_row * V
        if rest % per == 0 and (likely := rank(rest // per)):
            yield way._replace(adapters=x, rank=rest // per, bits=start + likely.bits)
        if most < 1:
            continue
        fixed = x.whole_row or x.per_rank_row
        for move in found:
            r = rest - move.value
            if r % per == 0 and not (fixed and move.tables >= 0) and (likely := rank(r // per)):
                yield way._replace(moves=(move,), adapters=x, rank=r // per, bits=start + likely.bits + move.bits)
        if start + LEAST_ROWS < space.bits:
            yield from _with_rows(space, way._replace(adapters=x, bits=start), left, space.base.row)


def _with_rows(space: Space, way: Way, left: int, row: int) -> Iterator[Way]:
    """A usual rank, and the vocabulary that it leaves; `row` is what one weighs in the model itself."""
    V, x = space.base.vocabulary, way.adapters
    assert x is not None
    per, rest = x.per_rank + x.per_rank_row * V, left - x.whole_row * V
    for r, bits in RANKS.items():
        each = row + r * x.per_rank_row + x.whole_row
        if way.bits + bits + LEAST_ROWS > space.bits or not each:
            continue
        away = rest - r * per
        if away % each == 0 and (likely := rows(V + away // each, V, space.known)):
            yield way._replace(rank=r, vocabulary=V + away // each, bits=way.bits + bits + 3 + likely.bits)


def alone(space: Space, number: int) -> Iterator[Way]:
    """Adapters without the model: what is trainable."""
    V = space.base.vocabulary
    if number > MOST_RANK * space.base.total:
        return
    for x in space.adapters:
        r, rest = divmod(number - x.whole_row * V, x.per_rank + x.per_rank_row * V)
        way = Way(space.base, space.plain, adapters=x, alone=True, bits=4 + x.bits, value=number)
        if rest == 0 and (likely := rank(r)):
            yield way._replace(rank=r, bits=way.bits + likely.bits)
        yield from _with_rows(space, way, number, 0)
