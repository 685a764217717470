"""The search: every point of the grid is decided, most of them by the score, because the total grows with layers and feed-forward width.

With everything but these two given, the total is a + b·L + c·F + e·L·F with coefficients from the tree. So the depths that can meet the
target at all are an interval, and for each of them the feed-forward widths are one: a row of the search costs the same however many
candidates it decides. What is in no interval is outside of the tolerance, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...core.record_type import Record
from .design_request import Request, Span
from .family_shape import Shape
from .grid import Grid, Outer
from .polynomial import Plane

BYTES = 2
"""Of a number in bfloat16: weights, keys and values."""


class Row(NamedTuple):
    """Candidates that differ in the feed-forward width alone; all of them meet the target."""

    outer: Outer
    layers: int
    ffn: Span
    start: int
    slope: int


class Space(Record):
    """One search: what is admissible, and what has to be met."""

    request: Request
    shape: Shape
    grid: Grid
    low: int  # the least total
    high: int  # and the greatest


class Tally:
    """What a search has looked at."""

    def __init__(self) -> None:
        self.points = 0  # of the grid, each decided
        self.rows = 0  # intervals worked out for that
        self.within = 0  # points that meet every demand


def space(request: Request, shape: Shape, grid: Grid) -> Space:
    """The totals that are within the tolerance, and fit the memory."""
    slack = int(request.target * request.tolerance)
    low, high = request.target - slack, request.target + slack
    if request.bounds.max_memory is not None:
        high = min(high, request.bounds.max_memory // BYTES)
    return Space(request=request, shape=shape, grid=grid, low=low, high=high)


def rows(where: Space, tally: Tally) -> Iterator[Row]:
    """Every row with a candidate in it."""
    for d, planes in widths(where):
        ffn = where.grid.ffn(d)
        for outer, total in planes:
            yield from _of(where, outer, total, ffn, tally)


def widths(where: Space) -> Iterator[tuple[int, list[tuple[Outer, Plane]]]]:
    """The widths at which some depth and feed-forward meet the target (or those that are given), with everything that goes with them."""
    grid, step = where.grid, where.grid.width_step
    first, last = grid.fixed.width or (step, where.high)
    d = step * -(-first // step)
    while d <= last:
        (least, most), (low, high) = grid.layers(d), grid.ffn(d)
        if not grid.one_width and plane(where.shape, Outer(d, 1, 1, 1)).at(least, low) > where.high:
            return
        planes = [(x, plane(where.shape, x)) for x in grid.outer(d)] if low <= high and least <= most else []
        if planes and not grid.one_width and min(x.at(least, low) for _, x in planes) > where.high:
            return
        if grid.one_width or any(x.at(most, high) >= where.low for _, x in planes):
            yield d, planes
        d += step


def plane(shape: Shape, outer: Outer) -> Plane:
    """The total over layers and feed-forward width."""
    return shape.total.plane(_values(shape, outer), shape.ffn)


def _values(shape: Shape, outer: Outer) -> dict[str, int]:
    made = {"d": outer.d, "h": outer.h, "H": outer.H, "K": outer.K}
    if shape.ffn == "Fe" and "F" in shape.keys:
        made["F"] = dense(shape, outer.d)
    return made


def dense(shape: Shape, d: int) -> int:
    """The width of the dense layers beside experts: the template's share of the width, in multiples of 64."""
    return max(64 * round(shape.sizes["F"] * d / shape.sizes["d"] / 64), 64)


def _of(where: Space, outer: Outer, total: Plane, ffn: Span, tally: Tally) -> Iterator[Row]:
    step = where.grid.step
    least, most = where.grid.layers(outer.d)
    most = min(most, _deepest(where, outer))
    first = max(least, _reach(total, where.low, ffn[1], up=True))
    last = min(most, _reach(total, where.high, ffn[0], up=False))
    if where.grid.aspect is None and where.grid.fixed.layers is None:
        least, most = max(least, first), min(most, last)
    tally.points += max(most - least + 1, 0) * ((ffn[1] - ffn[0]) // step + 1)
    active = _active(where, outer)
    for layers in range(first, last + 1):
        tally.rows += 1
        start, slope = total.line(layers)
        low, high = _interval(ffn, (where.low - start, where.high - start), slope)
        if active:
            began, grows = active.line(layers)
            aim, slack = where.request.bounds.active or 0, int((where.request.bounds.active or 0) * where.request.tolerance)
            low, high = _interval((low, high), (aim - slack - began, aim + slack - began), grows)
        low, high = -(-low // step) * step, high // step * step
        if low <= high:
            tally.within += (high - low) // step + 1
            yield Row(outer, layers, (low, high), start, slope)


def _active(where: Space, outer: Outer) -> Plane | None:
    if where.request.bounds.active is None:
        return None
    return where.shape.active.plane(_values(where.shape, outer), where.shape.ffn)


def _deepest(where: Space, outer: Outer) -> int:
    """The depth at which the cache of a token reaches its bound."""
    most = where.request.bounds.max_kv_per_token
    if most is None:
        return where.high
    return most // (BYTES * max(where.shape.kv_elements(1, outer.K, outer.h), 1))


def _reach(total: Plane, goal: int, ffn: int, up: bool) -> int:
    """The first depth that reaches a total at a feed-forward width, or the last that does not pass it."""
    short, each = goal - total.a - total.c * ffn, total.b + total.e * ffn
    return -(-short // each) if up else short // each


def _interval(ffn: Span, goal: Span, slope: int) -> Span:
    """The part of an interval of feed-forward widths where slope · F is between two numbers."""
    return max(ffn[0], -(-goal[0] // slope)), min(ffn[1], goal[1] // slope)
