"""The search of `explain`: every combination of a few moves that gives a number exactly.

All arithmetic is on integers. Vocabulary sizes and ranks are not enumerated but solved for: the residue must be divisible by the
parameters per vocabulary entry, or per rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from .explain_adapters import MIN_VOCAB_BITS, adapters_alone, with_adapters
from .explain_base import BaseModel
from .explain_shards import shards
from .hypotheses import MAX_MOVES, Hypothesis, HypothesisSpace
from .moves import UNPACKED, Move, Packing
from .priors import vocab_prior


def hypotheses_for(space: HypothesisSpace, number: int) -> Iterator[Hypothesis]:
    """Yield every hypothesis that gives exactly this number."""
    for shape, packing, value, bits in space.stored_counts():
        taken = len(shape.moves) + (packing is not UNPACKED)
        way = Hypothesis(space.base, shape, packing, bits=bits, value=number)
        found = space.compatible_moves(shape, packing)
        yield from _with_moves(way, number - value, found, MAX_MOVES - taken)
        if taken < MAX_MOVES:
            yield from _with_other_vocab(space, way, number - value, found, MAX_MOVES - taken - 1)
            if not shape.moves:
                yield from with_adapters(space, way, number - value, found, MAX_MOVES - taken - 1)
    yield from adapters_alone(space, number)
    yield from (x for x in shards(space, number) if x.value == number)


def _with_moves(way: Hypothesis, left: int, found: list[Move], most: int) -> Iterator[Hypothesis]:
    """Yield combinations of moves without free parameters."""
    if left == 0:
        yield way
    if most < 1:
        return
    by_value: dict[int, list[Move]] = {}
    for move in found:
        by_value.setdefault(move.value, []).append(move)
    for move in by_value.get(left, ()):
        yield _add_moves(way, move)
    for one in found if most > 1 else ():
        for other in by_value.get(left - one.value, ()):
            if one.group < other.group:
                yield _add_moves(way, one, other)


def _add_moves(way: Hypothesis, *moves: Move) -> Hypothesis:
    return way._replace(moves=moves, bits=way.bits + sum(x.bits for x in moves))


def _with_other_vocab(space: HypothesisSpace, way: Hypothesis, left: int, found: list[Move], most: int) -> Iterator[Hypothesis]:
    """Yield another vocabulary size with at most one more move."""
    base = space.base
    if way.bits + MIN_VOCAB_BITS > space.bits:
        return
    for move in (None, *(found if most > 0 else ())):
        row = _elements_per_vocab_row(base, move, way.packing)
        if not row:
            continue
        change, rest = divmod(left - (move.value if move else 0), row)
        if rest:
            continue
        likely = vocab_prior(base.vocabulary + change, base.vocabulary, space.known_vocab_sizes)
        if likely is not None:
            moves = (_move_at_vocab(base, move, base.vocabulary + change),) if move else ()
            bits = way.bits + 3 + likely.bits + (move.bits if move else 0)
            yield way._replace(moves=moves, vocabulary=base.vocabulary + change, bits=bits)


def _elements_per_vocab_row(base: BaseModel, move: Move | None, packing: Packing) -> int:
    """The parameters per vocabulary entry in the tables that are counted; 0 if a packed head makes that fractional."""
    embed, head = base.outside_layers["embed_row"], base.outside_layers["head_row"]
    if packing.head:
        return 0
    if move is None or move.tables < 0:
        return base.vocab_row
    return {0: 0, 1: embed, 2: embed + head, 3: head}[move.tables]


def _move_at_vocab(base: BaseModel, move: Move, vocabulary: int) -> Move:
    """Recompute a move on the vocabulary tables for another vocabulary size."""
    if move.tables < 0 or not move.value:
        return move
    per_row = _elements_per_vocab_row(base, move, UNPACKED) - base.vocab_row
    value = move.value + per_row * (vocabulary - base.vocabulary)
    return move._replace(value=value, formula=f"{'−' if value < 0 else ''}{vocabulary:,}·{abs(per_row):,}")


def all_hypotheses(space: HypothesisSpace, most: int) -> Iterator[Hypothesis]:
    """Yield every hypothesis without free parameters: a packing and up to `most` moves."""
    for shape, packing, value, bits in space.stored_counts():
        taken = len(shape.moves) + (packing is not UNPACKED)
        if taken > most:
            continue
        way = Hypothesis(space.base, shape, packing, bits=bits, value=value)
        yield way
        found = space.compatible_moves(shape, packing) if taken < most else []
        for i, one in enumerate(found):
            yield _add_moves(way, one)._replace(value=value + one.value)
            for other in found[i + 1 :] if taken + 1 < most else ():
                if one.group != other.group:
                    yield _add_moves(way, one, other)._replace(value=value + one.value + other.value)
