"""The search of `explain`: every combination of a few moves that gives a number exactly, and every count that needs nothing solved.

All is integer arithmetic. A vocabulary or a rank is not tried but solved for: what is left of the number must be divisible by what one row,
or one rank, weighs.
"""

from __future__ import annotations

from collections.abc import Iterator

from .explain_adapters import LEAST_ROWS, adapted, alone
from .explain_base import Base
from .explain_shards import shards
from .hypotheses import MOST_MOVES, Space, Way
from .moves import PLAIN, Move, Packing
from .priors import rows


def ways(space: Space, number: int) -> Iterator[Way]:
    """Every way to exactly this number."""
    for shape, packing, value, bits in space.stored():
        taken = len(shape.moves) + (packing is not PLAIN)
        way = Way(space.base, shape, packing, bits=bits, value=number)
        found = space.around(shape, packing)
        yield from _plain(way, number - value, found, MOST_MOVES - taken)
        if taken < MOST_MOVES:
            yield from _resized(space, way, number - value, found, MOST_MOVES - taken - 1)
            if not shape.moves:
                yield from adapted(space, way, number - value, found, MOST_MOVES - taken - 1)
    yield from alone(space, number)
    yield from (x for x in shards(space, number) if x.value == number)


def _plain(way: Way, left: int, found: list[Move], most: int) -> Iterator[Way]:
    """Moves that are what they are."""
    if left == 0:
        yield way
    if most < 1:
        return
    by_value: dict[int, list[Move]] = {}
    for move in found:
        by_value.setdefault(move.value, []).append(move)
    for move in by_value.get(left, ()):
        yield _with(way, move)
    for one in found if most > 1 else ():
        for other in by_value.get(left - one.value, ()):
            if one.group < other.group:
                yield _with(way, one, other)


def _with(way: Way, *moves: Move) -> Way:
    return way._replace(moves=moves, bits=way.bits + sum(x.bits for x in moves))


def _resized(space: Space, way: Way, left: int, found: list[Move], most: int) -> Iterator[Way]:
    """Another vocabulary, with at most one more move."""
    base = space.base
    if way.bits + LEAST_ROWS > space.bits:
        return
    for move in (None, *(found if most > 0 else ())):
        row = _row(base, move, way.packing)
        if not row:
            continue
        change, rest = divmod(left - (move.value if move else 0), row)
        if rest:
            continue
        likely = rows(base.vocabulary + change, base.vocabulary, space.known)
        if likely is not None:
            moves = (_resized_move(base, move, base.vocabulary + change),) if move else ()
            bits = way.bits + 3 + likely.bits + (move.bits if move else 0)
            yield way._replace(moves=moves, vocabulary=base.vocabulary + change, bits=bits)


def _row(base: Base, move: Move | None, packing: Packing) -> int:
    """What a row of the vocabulary weighs in the tables that are still counted; 0 where packing makes that no whole number."""
    embed, head = base.outside["embed_row"], base.outside["head_row"]
    if packing.head:
        return 0
    if move is None or move.tables < 0:
        return base.row
    return {0: 0, 1: embed, 2: embed + head, 3: head}[move.tables]


def _resized_move(base: Base, move: Move, vocabulary: int) -> Move:
    """A move on the tables, at another vocabulary."""
    if move.tables < 0 or not move.value:
        return move
    per_row = _row(base, move, PLAIN) - base.row
    value = move.value + per_row * (vocabulary - base.vocabulary)
    return move._replace(value=value, formula=f"{'−' if value < 0 else ''}{vocabulary:,}·{abs(per_row):,}")


def values(space: Space, most: int) -> Iterator[Way]:
    """Every way to some number that needs nothing solved: a storage and up to `most` moves."""
    for shape, packing, value, bits in space.stored():
        taken = len(shape.moves) + (packing is not PLAIN)
        if taken > most:
            continue
        way = Way(space.base, shape, packing, bits=bits, value=value)
        yield way
        found = space.around(shape, packing) if taken < most else []
        for i, one in enumerate(found):
            yield _with(way, one)._replace(value=value + one.value)
            for other in found[i + 1 :] if taken + 1 < most else ():
                if one.group != other.group:
                    yield _with(way, one, other)._replace(value=value + one.value + other.value)
