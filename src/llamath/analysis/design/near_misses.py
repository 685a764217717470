"""The nearest designs when nothing meets the constraints, and the constraints that rule everything out."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ...core.record_type import Record
from .design_ranking import HabitCosts, RankedDesign, rank_best
from .design_request import DesignBounds, DesignRequest, FixedDims
from .design_search import SearchStats, find_ranges, search_space
from .family_shape import FamilyShape
from .grid import build_grid
from .habits import Habits

_MAX_TOLERANCE = Fraction(16)


class BindingDemand(Record):
    """A constraint without which there would be candidates."""

    option: str
    within: int


class NearMisses(Record):
    """The nearest designs, and the binding constraints."""

    nearest: tuple[RankedDesign, ...]
    binding: tuple[BindingDemand, ...]


def find_near_misses(request: DesignRequest, shape: FamilyShape, known: Habits, most: int = 3) -> NearMisses:
    """Find the nearest totals under the same constraints, and the constraints that bind."""
    tolerance, nearest = request.tolerance, list[RankedDesign]()
    while not nearest and tolerance < _MAX_TOLERANCE:
        tolerance = max(4 * tolerance, Fraction(1, 1000))
        nearest = _search(request.replace(tolerance=tolerance, by_error=True), shape, known, most)[0]
    return NearMisses(nearest=tuple(nearest), binding=tuple(_binding(request, shape, known)))


def _binding(request: DesignRequest, shape: FamilyShape, known: Habits) -> Iterator[BindingDemand]:
    for part, plain in (("fixed", FixedDims()), ("bounds", DesignBounds())):
        asked: Any = getattr(request, part)
        for name in asked.fields:
            if getattr(asked, name) == getattr(plain, name) or name in ("vocab", "tied", "experts", "top_k"):
                continue
            eased = request.replace(**{part: asked.replace(**{name: getattr(plain, name)})})
            if within := _search(eased, shape, known, 1)[1].within:
                yield BindingDemand(option=name, within=within)


def _search(request: DesignRequest, shape: FamilyShape, known: Habits, keep: int) -> tuple[list[RankedDesign], SearchStats]:
    tally, made = SearchStats(), build_grid(request, shape, known)
    found = rank_best(find_ranges(search_space(request, shape, made), tally), HabitCosts(known), request, made, keep)
    return found, tally
