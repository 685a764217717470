"""`explain`: a parameter count that some program printed → the ways to come by exactly that number, simplest first.

How simple a way is, is measured in bits: about what it takes to say which model, which moves, which vocabulary and which rank are meant.
There are some 2^c ways of c bits, so a way is only claimed where it takes `MARGIN` bits less than the number itself: else a number that
has no cause would be explained as well. Near misses are weighed likewise, with the bits of what is left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import NamedTuple

from ...core.record_type import Record
from .explain_base import Base
from .explain_search import values, ways
from .explain_terms import packed, terms
from .hypotheses import Space, Way
from .moves import PLAIN, Term

MARGIN = 6.0
"""Bits that an explanation must save over the number itself."""
WINDOW = 7.0
"""Candidates that take so many bits more than the simplest are counted, not listed."""
CUT = 1.5
"""Bits that it takes to say that a name is cut and not rounded, as 405B is of 405.85 billion."""
SHOWN, NEAREST = 8, 3


class Candidate(Record):
    """One explanation; its terms and the residue sum to the number."""

    base: str
    also: tuple[str, ...]
    value: int
    residue: int
    terms: tuple[Term, ...]
    bits: float

    @property
    def exact(self) -> bool:
        """Whether nothing is left over."""
        return self.residue == 0

    @property
    def summary(self) -> str:
        """The terms in a line."""
        return ", ".join(x.what for x in self.terms)


class Name(NamedTuple):
    """A number of few digits, and the numbers that go by it: from `low` to below `high`, those in the second half cut, not rounded."""

    text: str
    value: int
    low: int
    high: int

    def rounds(self, value: int) -> bool:
        """Whether a number rounds to the name."""
        return self.low <= value < 2 * self.value - self.low


class Explanation(Record):
    """Everything `llamath explain` shows."""

    number: int
    name: str  # what was asked for, where it is a name of few digits
    bounds: tuple[int, int]  # the smallest and the largest number of that name
    like: str
    models: int  # how many were looked at
    candidates: tuple[Candidate, ...]
    more: int = 0  # as simple ones that are not listed


def explain(number: int, bases: Sequence[Base], models: int, known: Mapping[int, str], most: int = SHOWN) -> Explanation:
    """Decode a count; `models` is out of how many the bases were taken, `known` whose vocabulary is of which size; `most` 0 lists all."""
    room = log2(max(number, 2)) - MARGIN
    spaces = [Space(base=x, known=known, bits=room - _naming(x, models)) for x in bases]
    found = [way._replace(bits=way.bits + room - space.bits) for space in spaces for way in ways(space, number) if way.bits <= space.bits]
    report = Explanation(number=number, name="", bounds=(number, number + 1), like=_like(bases), models=models, candidates=())
    if found:
        return _chosen(report, _distinct(found), known, most)
    near = sorted(((score, way) for x in spaces for score, way in _near(x, number, room)), key=lambda x: (x[0], x[1].value))
    order = {id(way): i for i, (_, way) in enumerate(near)}
    closest = sorted(_distinct(way for _, way in near), key=lambda x: order[id(x[0])])
    return report.replace(candidates=tuple(_candidate(way, number, also, known) for way, also in closest[:NEAREST]))


def explain_name(name: Name, bases: Sequence[Base], models: int, most: int = SHOWN) -> Explanation:
    """What can carry a name of few digits: counts that round to it, or are cut to it, the simplest first; or else those that nearly do."""
    found: list[Way] = []
    near: list[Way] = []
    for base in bases:
        for way in values(Space(base=base, known={}, bits=12.0 if base.like else 6.0), 2):
            if not way.shape.moves and _needed(way, name):
                bits = way.bits + _naming(base, models) + CUT * (not name.rounds(way.value))
                (found if name.low <= way.value < name.high else near).append(way._replace(bits=bits))
    report = Explanation(number=name.value, name=name.text, bounds=(name.low, name.high), like=_like(bases), models=models, candidates=())
    if found:
        return _chosen(report, _distinct(found), {}, most)
    near = [
        x
        for x in near
        if x.steps < 2 and all(abs(y.value) > name.high - name.low for y in x.moves) and 20 * abs(x.value - name.value) < name.value
    ]
    closest = sorted(_distinct(near), key=lambda x: (abs(x[0].value - name.value), x[0].bits))
    return report.replace(candidates=tuple(_candidate(way, name.value, also, {}) for way, also in closest[:NEAREST]))


def _needed(way: Way, name: Name) -> bool:
    """Whether no move can be left out: a norm more or less gives a model no other name."""
    saved = (packed(way).value,) if way.packing is not PLAIN else ()
    return not any(name.low <= way.value - x < name.high for x in (*saved, *(move.value for move in way.moves)))


def _like(bases: Sequence[Base]) -> str:
    return next((x.name for x in bases if x.like), "")


def _naming(base: Base, models: int) -> float:
    """The bits that it takes to say which model is meant."""
    return 0.0 if base.like else log2(models)


def _chosen(report: Explanation, found: list[tuple[Way, tuple[str, ...]]], known: Mapping[int, str], most: int) -> Explanation:
    """The simplest few, and how many more there are that are hardly less simple."""
    kept = [x for x in found if x[0].bits <= found[0][0].bits + WINDOW][:most] if most else found
    candidates = tuple(_candidate(way, report.number, also, known) for way, also in kept)
    return report.replace(candidates=candidates, more=len(found) - len(kept))


def _near(space: Space, number: int, room: float) -> Iterator[tuple[float, Way]]:
    """Simple counts that are close: what is left over takes bits as well; of a model that was named, within a twentieth."""
    naming = room - space.bits
    for way in values(space, 1):
        score = way.bits + naming + 1 + log2(abs(number - way.value) or 1)
        if score <= room or (space.base.like and 20 * abs(number - way.value) < number):
            yield score, way._replace(bits=way.bits + naming)


def _distinct(found: Iterable[Way]) -> list[tuple[Way, tuple[str, ...]]]:
    """Each explanation once, simplest first, with the other models that it holds for."""
    best: dict[tuple[object, ...], tuple[Way, dict[str, None]]] = {}
    for way in sorted(found, key=lambda x: (x.bits, x.steps)):
        first, names = best.setdefault(_key(way), (way, {}))
        names |= dict.fromkeys((way.base.name, *way.base.also) if way.bits <= first.bits else ())
    return [(way, tuple(x for x in names if x != way.base.name)) for way, names in best.values()]


def _key(way: Way) -> tuple[object, ...]:
    """What makes two ways one: the same moves to the same number, models that differ in what is not counted taken together."""
    targets = (way.adapters.what, way.rank) if way.adapters else ()
    if way.alone:
        return targets, way.value
    moves = tuple(sorted(x.what for x in (*way.shape.moves, *way.moves) if x.tables < 0))
    tables = next((x.tables for x in way.moves if x.tables >= 0), 1 if way.base.tied else 2)
    vocabulary = way.vocabulary or way.base.vocabulary
    return way.base.kinds_key, (tables, vocabulary) if tables else (), way.packing, moves, targets, way.value


def _candidate(way: Way, number: int, also: tuple[str, ...], known: Mapping[int, str]) -> Candidate:
    parts = tuple(terms(way, known))
    value = sum(x.value for x in parts)
    return Candidate(base=way.base.name, also=also, value=value, residue=number - value, terms=parts, bits=way.bits)
