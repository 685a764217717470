"""Rank designs by their distance from a series' habits, without scoring those that cannot be
among the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappush, heapreplace
from math import log
from typing import NamedTuple

from .design_request import DesignRequest
from .design_search import FfnRange
from .grid import Grid, OuterDims
from .habits import (
    INDIVISIBLE_COST,
    ROUNDNESS_COST,
    UNUSUAL_COST,
    Choice,
    Habits,
    divides,
    odd_bits,
)

_HEADS_SCATTER = 0.15
"""The expected scatter of (heads × head_dim) / width, where that ratio is free."""

_MAX_COMPARED = 12
"""Ranges of at most this many FFN widths are scored one by one; for longer ranges, all widths
are sorted once."""


class RankedDesign(NamedTuple):
    """A design with its sort key; smaller keys rank higher."""

    key: tuple[bool, float, float]  # whether it misses an exact target, and its costs
    outer: OuterDims
    layers: int
    ffn: int
    total: int


class HabitCosts:
    """The costs of dimensions under given habits, cached."""

    def __init__(self, habits: Habits) -> None:
        self.habits = habits
        self._ffn: dict[int, float] = {}
        self._order: dict[int, list[tuple[float, int]]] = {}

    def outer(self, x: OuterDims) -> float:
        """The cost of width, heads and KV heads."""
        habits = self.habits
        cost = ROUNDNESS_COST * max(odd_bits(x.d) - habits.width_bits, 0.0) + _choice_cost(
            x.h, habits.head_dims
        )
        usual = x.K == x.H if habits.multi_head else x.K in habits.kv_heads.usual
        cost += 0.0 if usual else UNUSUAL_COST if x.K in habits.kv_heads.known else 2 * UNUSUAL_COST
        if not habits.square:
            cost += 0.5 * ((log(x.H * x.h / x.d) - habits.heads.value) / _HEADS_SCATTER) ** 2
        return cost + (
            INDIVISIBLE_COST if habits.multiples_of_8 and not divides(8, x.d, x.H) else 0.0
        )

    def depth(self, d: int, layers: int) -> float:
        """The cost of the depth: aspect ratio and parity."""
        habits = self.habits
        cost = 0.5 * ((log(d / layers) - habits.aspect.value) / habits.aspect.scatter) ** 2
        return cost + (INDIVISIBLE_COST if habits.even and layers % 2 else 0.0)

    def ffn(self, d: int, ffn: int) -> float:
        """The cost of the FFN width: its ratio to the width, and roundness."""
        habits = self.habits
        if (roundness := self._ffn.get(ffn)) is None:
            roundness = self._ffn[ffn] = ROUNDNESS_COST * max(
                odd_bits(ffn) - habits.ffn_bits, 0.0
            ) + (INDIVISIBLE_COST if habits.multiples_of_8 and ffn % 8 else 0.0)
        return roundness + 0.5 * ((log(ffn / d) - habits.ffn.value) / habits.ffn.scatter) ** 2

    def in_order(self, d: int, grid: Grid) -> list[tuple[float, int]]:
        """Return all admissible FFN widths for a width, cheapest first."""
        if d not in self._order:
            low, high = grid.ffn(d)
            self._order[d] = sorted((self.ffn(d, x), x) for x in range(low, high + 1, grid.step))
        return self._order[d]


def _choice_cost(n: int, choice: Choice) -> float:
    return 0.0 if n in choice.usual else UNUSUAL_COST if n in choice.known else 2 * UNUSUAL_COST


def rank_best(
    ranges: Iterable[FfnRange], costs: HabitCosts, request: DesignRequest, grid: Grid, keep: int
) -> list[RankedDesign]:
    """Return the best designs; of those that differ only in the FFN width, only the best is
    kept.
    """
    heap: list[tuple[tuple[bool, float, float], int, RankedDesign]] = []
    outer: dict[OuterDims, float] = {}
    for serial, row in enumerate(ranges):
        if (base := outer.get(row.outer)) is None:
            base = outer[row.outer] = costs.outer(row.outer)
        base += costs.depth(row.outer.d, row.layers)
        exact = _exact_design(row, costs, request, grid.step, base)
        worst = -heap[0][0][1] if len(heap) == keep else None
        if not (request.by_error or exact) and worst is not None and base > worst:
            continue
        design = exact or (
            _by_error(row, costs, request, grid.step, base)
            if request.by_error
            else _by_habit(row, costs, grid, base, request)
        )
        entry = ((not design.key[0], -design.key[1], -design.key[2]), -serial, design)
        if len(heap) < keep:
            heappush(heap, entry)
        elif entry > heap[0]:
            heapreplace(heap, entry)
    return sorted((x for _, _, x in heap), key=lambda x: (x.key, x.outer, x.layers))


def _by_habit(
    row: FfnRange, costs: HabitCosts, grid: Grid, base: float, request: DesignRequest
) -> RankedDesign:
    d, (low, high) = row.outer.d, row.ffn
    if (high - low) // grid.step < _MAX_COMPARED:
        cost, ffn = min((costs.ffn(d, ffn), ffn) for ffn in range(low, high + 1, grid.step))
    else:
        cost, ffn = next(x for x in costs.in_order(d, grid) if low <= x[1] <= high)
    total = row.start + row.slope * ffn
    return RankedDesign(
        (True, base + cost, abs(total - request.target)), row.outer, row.layers, ffn, total
    )


def _exact_design(
    row: FfnRange, costs: HabitCosts, request: DesignRequest, step: int, base: float
) -> RankedDesign | None:
    """Return the design with exactly the target's parameters, if the target is an exact count."""
    ffn, rest = divmod(request.target - row.start, row.slope)
    if not request.is_exact or rest or ffn % step or not row.ffn[0] <= ffn <= row.ffn[1]:
        return None
    return RankedDesign(
        (False, base + costs.ffn(row.outer.d, ffn), 0), row.outer, row.layers, ffn, request.target
    )


def _by_error(
    row: FfnRange, costs: HabitCosts, request: DesignRequest, step: int, base: float
) -> RankedDesign:
    d, (low, high) = row.outer.d, row.ffn
    near = (request.target - row.start) // row.slope // step * step
    choices = {min(max(x, low), high) for x in (near, near + step)}
    error, cost, ffn = min(
        (abs(row.start + row.slope * x - request.target), base + costs.ffn(d, x), x)
        for x in choices
    )
    return RankedDesign(
        (True, error, cost), row.outer, row.layers, ffn, row.start + row.slope * ffn
    )


def design_dims(design: RankedDesign, ffn: str) -> Mapping[str, int]:
    """Return the dimensions of a design by letter."""
    x = design.outer
    return {"L": design.layers, "d": x.d, "H": x.H, "K": x.K, "h": x.h, ffn: design.ffn}
