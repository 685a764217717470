"""When nothing meets the demands: what comes nearest, and which demand stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ...core.record_type import Record
from .design_ranking import Costs, Ranked, best
from .design_request import Bounds, Fixed, Request
from .design_search import Tally, rows, space
from .family_shape import Shape
from .grid import grid
from .habits import Habits

WIDEST = Fraction(16)
OPTIONS = {"max_kv_per_token": "--max-kv-per-token", "max_memory": "--max-memory"}


class Binding(Record):
    """A demand without which there would be candidates."""

    option: str
    within: int


class Misses(Record):
    """Why there is none."""

    nearest: tuple[Ranked, ...]
    binding: tuple[Binding, ...]


def misses(request: Request, shape: Shape, known: Habits, most: int = 3) -> Misses:
    """The nearest totals under the same demands, and the demands that bind."""
    tolerance, nearest = request.tolerance, list[Ranked]()
    while not nearest and tolerance < WIDEST:
        tolerance = max(4 * tolerance, Fraction(1, 1000))
        nearest = _found(request.replace(tolerance=tolerance, by_error=True), shape, known, most)[0]
    return Misses(nearest=tuple(nearest), binding=tuple(_binding(request, shape, known)))


def _binding(request: Request, shape: Shape, known: Habits) -> Iterator[Binding]:
    for part, plain in (("fixed", Fixed()), ("bounds", Bounds())):
        asked: Any = getattr(request, part)
        for name in asked.fields:
            if getattr(asked, name) == getattr(plain, name) or name in ("vocab", "tied", "experts", "top_k"):
                continue
            eased = request.replace(**{part: asked.replace(**{name: getattr(plain, name)})})
            if within := _found(eased, shape, known, 1)[1].within:
                yield Binding(option=OPTIONS.get(name, f"--{name.replace('_', '-')}"), within=within)


def _found(request: Request, shape: Shape, known: Habits, keep: int) -> tuple[list[Ranked], Tally]:
    tally, made = Tally(), grid(request, shape, known)
    found = best(rows(space(request, shape, made), tally), Costs(known), request, made, keep)
    return found, tally
