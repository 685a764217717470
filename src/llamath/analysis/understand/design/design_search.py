"""The design search decides every grid point, most of them by intervals: the total grows with
layers and FFN width.

With all other dimensions given, the total is a + b·L + c·F + e·L·F with coefficients from the tree.
So the depths that can reach the target form an interval, and for each depth so do the FFN widths:
one range costs the same however many designs it contains. Everything outside the intervals is
outside the tolerance, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....utils.record_type import Record
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
    """Return the search space: the totals within the tolerance."""
    slack = int(request.target * request.tolerance)
    low, high = request.target - slack, request.target + slack
    return _SearchSpace(request=request, shape=shape, grid=grid, low=low, high=high)


def find_ranges(space: _SearchSpace, stats: SearchStats) -> Iterator[FfnRange]:
    """Yield every range of FFN widths that contains a design."""
    for d, planes in _possible_widths(space):
        ffn = space.grid.ffn(d)
        for outer, total in planes:
            yield from _ranges_of(space, outer, total, ffn, stats)


def _possible_widths(space: _SearchSpace) -> Iterator[tuple[int, list[tuple[OuterDims, Plane]]]]:
    """Yield the widths at which some depth and FFN width meet the target, with the other
    dimensions and the total as a plane.
    """
    grid, step = space.grid, space.grid.width_step
    first, last = grid.fixed.width or (step, space.high)
    d = step * -(-first // step)
    while d <= last:
        (min_layers, max_layers), (low, high) = grid.layers(d), grid.ffn(d)
        if (
            not grid.one_width
            and _plane_of(space.shape, OuterDims(d, 1, 1, 1)).at(min_layers, low) > space.high
        ):
            return
        planes = (
            [(x, _plane_of(space.shape, x)) for x in grid.outer(d)]
            if low <= high and min_layers <= max_layers
            else []
        )
        if (
            planes
            and not grid.one_width
            and min(x.at(min_layers, low) for _, x in planes) > space.high
        ):
            return
        if grid.one_width or any(x.at(max_layers, high) >= space.low for _, x in planes):
            yield d, planes
        d += step


def _plane_of(shape: FamilyShape, outer: OuterDims) -> Plane:
    """Return the total as a function of layers and FFN width."""
    return shape.total.plane(_values(shape, outer), shape.ffn)


def _values(shape: FamilyShape, outer: OuterDims) -> dict[str, int]:
    values = {"d": outer.d, "h": outer.h, "H": outer.H, "K": outer.K}
    if shape.ffn == "Fe" and "F" in shape.keys:
        values["F"] = dense_ffn_width(shape, outer.d)
    return values


def dense_ffn_width(shape: FamilyShape, d: int) -> int:
    """Return the FFN width of an MoE model's dense layers: the template's ratio to the width,
    rounded to multiples of 64.
    """
    return max(64 * round(shape.sizes["F"] * d / shape.sizes["d"] / 64), 64)


def _ranges_of(
    space: _SearchSpace, outer: OuterDims, total: Plane, ffn: IntRange, stats: SearchStats
) -> Iterator[FfnRange]:
    step = space.grid.step
    min_layers, max_layers = space.grid.layers(outer.d)
    max_layers = min(max_layers, _max_depth(space, outer))
    first = max(min_layers, _depth_reaching(total, space.low, ffn[1], up=True))
    last = min(max_layers, _depth_reaching(total, space.high, ffn[0], up=False))
    if space.grid.aspect is None and space.grid.fixed.layers is None:
        min_layers, max_layers = max(min_layers, first), min(max_layers, last)
    stats.points += max(max_layers - min_layers + 1, 0) * ((ffn[1] - ffn[0]) // step + 1)
    active = _active_plane(space, outer)
    for layers in range(first, last + 1):
        stats.rows += 1
        start, slope = total.line(layers)
        low, high = _interval(ffn, (space.low - start, space.high - start), slope)
        if active:
            active_start, active_slope = active.line(layers)
            active_target = space.request.active or 0
            active_slack = int(active_target * space.request.tolerance)
            low, high = _interval(
                (low, high),
                (
                    active_target - active_slack - active_start,
                    active_target + active_slack - active_start,
                ),
                active_slope,
            )
        low, high = -(-low // step) * step, high // step * step
        if low <= high:
            stats.within += (high - low) // step + 1
            yield FfnRange(outer, layers, (low, high), start, slope)


def _active_plane(space: _SearchSpace, outer: OuterDims) -> Plane | None:
    if space.request.active is None:
        return None
    return space.shape.active.plane(_values(space.shape, outer), space.shape.ffn)


def _max_depth(space: _SearchSpace, outer: OuterDims) -> int:
    """The largest depth within the limit on KV-cache bytes per token."""
    max_kv_bytes = space.request.bounds.max_kv_per_token
    if max_kv_bytes is None:
        return space.high
    return max_kv_bytes // (BF16_BYTES * max(space.shape.kv_elements(1, outer.K, outer.h), 1))


def _depth_reaching(total: Plane, goal: int, ffn: int, up: bool) -> int:
    """The smallest depth that reaches a total at an FFN width (up), or the largest that does not
    exceed it.
    """
    missing, per_layer = goal - total.a - total.c * ffn, total.b + total.e * ffn
    return -(-missing // per_layer) if up else missing // per_layer


def _interval(ffn: IntRange, goal: IntRange, slope: int) -> IntRange:
    """The part of a range of FFN widths in which slope · F lies between two totals."""
    return max(ffn[0], -(-goal[0] // slope)), min(ffn[1], goal[1] // slope)
