"""The search: every grid point is decided, most of them by intervals, because the total grows with layers and FFN width.

With all other dimensions given, the total is a + b·L + c·F + e·L·F with coefficients from the tree. So the depths that can reach the
target form an interval, and for each depth so do the FFN widths: one range costs the same however many designs it contains. Everything
outside the intervals is outside the tolerance, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...core.record_type import Record
from .design_request import DesignRequest, IntRange
from .family_shape import FamilyShape
from .grid import Grid, OuterDims
from .polynomial import Plane

BF16_BYTES = 2
"""Bytes per element of weights, keys and values."""


class FfnRange(NamedTuple):
    """Designs that differ only in the FFN width; all of them meet the target."""

    outer: OuterDims
    layers: int
    ffn: IntRange
    start: int
    slope: int


class _SearchSpace(Record):
    """One search: the grid, and the range of totals to meet."""

    request: DesignRequest
    shape: FamilyShape
    grid: Grid
    low: int  # the smallest admissible total
    high: int  # the largest admissible total


class SearchStats:
    """Counters of a search."""

    def __init__(self) -> None:
        self.points = 0  # grid points decided
        self.rows = 0  # intervals computed to decide them
        self.within = 0  # grid points that meet every constraint


def search_space(request: DesignRequest, shape: FamilyShape, grid: Grid) -> _SearchSpace:
    """Return the search space: the totals within the tolerance and the memory limit."""
    slack = int(request.target * request.tolerance)
    low, high = request.target - slack, request.target + slack
    if request.bounds.max_memory is not None:
        high = min(high, request.bounds.max_memory // BF16_BYTES)
    return _SearchSpace(request=request, shape=shape, grid=grid, low=low, high=high)


def find_ranges(where: _SearchSpace, tally: SearchStats) -> Iterator[FfnRange]:
    """Yield every range of FFN widths that contains a design."""
    for d, planes in _possible_widths(where):
        ffn = where.grid.ffn(d)
        for outer, total in planes:
            yield from _ranges_of(where, outer, total, ffn, tally)


def _possible_widths(where: _SearchSpace) -> Iterator[tuple[int, list[tuple[OuterDims, Plane]]]]:
    """Yield the widths at which some depth and FFN width meet the target, with the other dimensions and the total as a plane."""
    grid, step = where.grid, where.grid.width_step
    first, last = grid.fixed.width or (step, where.high)
    d = step * -(-first // step)
    while d <= last:
        (least, most), (low, high) = grid.layers(d), grid.ffn(d)
        if not grid.one_width and _plane_of(where.shape, OuterDims(d, 1, 1, 1)).at(least, low) > where.high:
            return
        planes = [(x, _plane_of(where.shape, x)) for x in grid.outer(d)] if low <= high and least <= most else []
        if planes and not grid.one_width and min(x.at(least, low) for _, x in planes) > where.high:
            return
        if grid.one_width or any(x.at(most, high) >= where.low for _, x in planes):
            yield d, planes
        d += step


def _plane_of(shape: FamilyShape, outer: OuterDims) -> Plane:
    """Return the total as a function of layers and FFN width."""
    return shape.total.plane(_values(shape, outer), shape.ffn)


def _values(shape: FamilyShape, outer: OuterDims) -> dict[str, int]:
    made = {"d": outer.d, "h": outer.h, "H": outer.H, "K": outer.K}
    if shape.ffn == "Fe" and "F" in shape.keys:
        made["F"] = dense_ffn_width(shape, outer.d)
    return made


def dense_ffn_width(shape: FamilyShape, d: int) -> int:
    """Return the FFN width of an MoE model's dense layers: the template's ratio to the width, rounded to multiples of 64."""
    return max(64 * round(shape.sizes["F"] * d / shape.sizes["d"] / 64), 64)


def _ranges_of(where: _SearchSpace, outer: OuterDims, total: Plane, ffn: IntRange, tally: SearchStats) -> Iterator[FfnRange]:
    step = where.grid.step
    least, most = where.grid.layers(outer.d)
    most = min(most, _max_depth(where, outer))
    first = max(least, _depth_reaching(total, where.low, ffn[1], up=True))
    last = min(most, _depth_reaching(total, where.high, ffn[0], up=False))
    if where.grid.aspect is None and where.grid.fixed.layers is None:
        least, most = max(least, first), min(most, last)
    tally.points += max(most - least + 1, 0) * ((ffn[1] - ffn[0]) // step + 1)
    active = _active_plane(where, outer)
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
            yield FfnRange(outer, layers, (low, high), start, slope)


def _active_plane(where: _SearchSpace, outer: OuterDims) -> Plane | None:
    if where.request.bounds.active is None:
        return None
    return where.shape.active.plane(_values(where.shape, outer), where.shape.ffn)


def _max_depth(where: _SearchSpace, outer: OuterDims) -> int:
    """The largest depth within the limit on KV-cache bytes per token."""
    most = where.request.bounds.max_kv_per_token
    if most is None:
        return where.high
    return most // (BF16_BYTES * max(where.shape.kv_elements(1, outer.K, outer.h), 1))


def _depth_reaching(total: Plane, goal: int, ffn: int, up: bool) -> int:
    """The smallest depth that reaches a total at an FFN width (up), or the largest that does not exceed it."""
    short, each = goal - total.a - total.c * ffn, total.b + total.e * ffn
    return -(-short // each) if up else short // each


def _interval(ffn: IntRange, goal: IntRange, slope: int) -> IntRange:
    """The part of a range of FFN widths in which slope · F lies between two totals."""
    return max(ffn[0], -(-goal[0] // slope)), min(ffn[1], goal[1] // slope)
