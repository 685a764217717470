"""Rounding bounds: how far from a stored value the value that was rounded to it can lie.

A plain float stands for the numbers that round to it: half the distance to its neighbors. A level
of a block type stands for the numbers nearest to it, half a level to each side, in units of its
group's scale; K types and IQ4 choose levels with the scales that they store, the others before the
scale is rounded to 16 bits. Beyond the lowest and the highest level lie the values that the
quantizer clipped: at most `beyond` levels, and as far as the rounding of the group's scale and
minimum (to 4 or 6 bits of the block's) moved them. With an importance matrix, llama.cpp fits the
scales of Q4_0, Q4_1, Q5_0 and Q5_1 again after it chose the levels: three half levels to each side,
four levels at the ends.

A code of the IQ1, IQ2 and IQ3 types stands for four or eight values, so there is no bound for a
single one: their tensors are compared by the relative error of all values.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from ..formats.number_arrays import require_numpy
from .ggml_grids import IQ4_LEVELS
from .ggml_values import E2M1, Blocks

Array = Any
"""A numpy array."""

MANTISSA_BITS = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7, "F8_E4M3": 3, "F8_E5M2": 2}
"""Stored bits of the mantissa of float types."""
_MIN_EXPONENT = {"F64": -1022, "F32": -126, "F16": -14, "BF16": -126, "F8_E4M3": -6, "F8_E5M2": -14}
"""The exponents of their smallest normal numbers; smaller numbers are multiples of the same
step."""
CODEBOOK_ERRORS = {
    "IQ1_S": 0.8,
    "IQ1_M": 0.7,
    "IQ2_XXS": 0.8,
    "IQ2_XS": 0.7,
    "IQ2_S": 0.65,
    "IQ3_XXS": 0.45,
    "IQ3_S": 0.4,
}
"""The largest relative error (root mean square) of a tensor of these types that counts as
rounding; unrelated weights have 1.4."""
_SLACK = 2.0**-20
"""Relative error of the float32 arithmetic of quantizers."""
_F16_STEP = 2.0**-25
"""Half of the smallest F16 number: quantizers often read an F16 file."""


class _Levels(NamedTuple):
    """The levels of a block type."""

    low: int
    high: int
    beyond: float = 1.0  # largest distance of a clipped value from the last level, in levels
    rounds_scale_last: bool = False  # the scale is rounded after the levels were chosen
    gaps: tuple[int, ...] = ()  # sorted levels that are not equally spaced


_IQ4 = tuple(sorted(IQ4_LEVELS))
_FP4 = tuple(sorted(set(E2M1)))
_LEVELS = {
    "Q4_0": _Levels(-8, 7, 1, True),
    "Q4_1": _Levels(0, 15, 0.5, True),
    "Q5_0": _Levels(-16, 15, 1, True),
    "Q5_1": _Levels(0, 31, 0.5, True),
    "Q8_0": _Levels(-127, 127, 0.5, True),
    "Q8_1": _Levels(-127, 127, 0.5, True),
    "Q8_K": _Levels(-127, 127, 1),
    "Q2_K": _Levels(0, 3, 4),
    "Q3_K": _Levels(-4, 3, 4),
    "Q4_K": _Levels(0, 15, 4),
    "Q5_K": _Levels(0, 31, 4),
    "Q6_K": _Levels(-32, 31, 4),
    "IQ4_NL": _Levels(-127, 113, 60, True, _IQ4),
    "IQ4_XS": _Levels(-127, 113, 60, True, _IQ4),
    "TQ1_0": _Levels(-1, 1, 0.5, True),
    "TQ2_0": _Levels(-1, 1, 0.5, True),
    "Q2_0": _Levels(-1, 2, 0.5, True),
    "Q1_0": _Levels(-1, 1, 127, True, (-1, 1)),
    "MXFP4": _Levels(-12, 12, 4, False, _FP4),
    "NVFP4": _Levels(-12, 12, 1, True, _FP4),
}
SMALLEST_HALF_GAP = {
    dtype: min(b - a for a, b in pairwise(rule.gaps)) / 2
    for dtype, rule in _LEVELS.items()
    if rule.gaps
}
"""Half the smallest distance of two levels, where it is not a half."""
_REFITTED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1")
"""Types whose scales are fitted again after the levels were chosen, given an importance matrix."""


def float_radius(values: Array, dtype: str, outward: Array) -> Array:
    """Return how far the number that was rounded to each of these values lies at most, in the
    direction `outward` (True: away from 0).
    """
    np = require_numpy()
    smallest, half_step = 2.0 ** _MIN_EXPONENT[dtype], 2.0 ** -(MANTISSA_BITS[dtype] + 1)
    bits = np.abs(values.astype("f8")).view("u8")
    # the largest power of two up to each value
    power = np.clip((bits & np.uint64(0x7FF << 52)).view("f8"), smallest, 2.0**1023)
    # the neighbor towards 0 is twice as close
    is_power = (bits & np.uint64((1 << 52) - 1) == 0) & (power > smallest) & ~outward
    return np.where(is_power, half_step / 2, half_step) * power


def surely_within(blocks: Blocks, dtype: str, positions: Array, distance: Array) -> Array:
    """Return which of these distances (the number less the value, float32) are within
    `block_radius`, without most of its terms.
    """
    np = require_numpy()
    rule = _LEVELS[dtype]
    groups, in_group = np.divmod(positions, blocks.levels.shape[2])
    in_block = np.divmod(groups, blocks.levels.shape[1])
    # of Q8_0, a flat view would be a copy
    scale, level = blocks.scale.reshape(-1)[groups], blocks.levels[(*in_block, in_group)]
    size = np.abs(scale)
    bound = size * np.float32(SMALLEST_HALF_GAP.get(dtype, 0.5))
    if rule.rounds_scale_last and blocks.super_scale is None and dtype != "NVFP4":
        bound += np.abs(level.astype("f4")) * (_power_of_two_below(size) * np.float32(2.0**-11))
    is_end = np.where((distance > 0) == (scale > 0), level >= rule.high, level <= rule.low)
    np.maximum(bound, size * np.float32(rule.beyond), out=bound, where=is_end)
    return np.abs(distance) <= bound


def _power_of_two_below(x: Array) -> Array:
    """Return the largest power of two up to each positive float32, and 0 for the smallest
    numbers.
    """
    np = require_numpy()
    return (x.view("u4") & np.uint32(0x7F800000)).view("f4")


def block_radius(
    blocks: Blocks, dtype: str, positions: Array, upward: Array, importance: bool = False
) -> Array:
    """Return the same for the values of a block type at these positions; `upward` says whether
    the number is larger than the value.
    """
    np = require_numpy()
    rule = _LEVELS[dtype]
    refitted = importance and dtype in _REFITTED
    groups, level = positions // blocks.levels.shape[2], blocks.levels.reshape(-1)[positions]
    is_dense = len(positions) > blocks.scale.size
    bounds = _group_bounds(
        blocks, dtype, np.arange(blocks.scale.size) if is_dense else groups, refitted
    )
    if is_dense:
        bounds = _GroupBounds(*(x[groups] for x in bounds))
    ascending = upward == bounds.is_positive
    below, above = _half_gaps(rule, level)
    is_end = np.where(ascending, level >= rule.high - refitted, level <= rule.low + refitted)
    step = bounds.step * np.where(ascending, above, below)
    return (
        np.where(is_end | bounds.is_zero, bounds.clipped, step)
        + np.abs(level.astype("f8")) * bounds.scale_error
        + bounds.rest
    )


class _GroupBounds(NamedTuple):
    """What the bounds of a group's values are made of."""

    is_positive: Array
    is_zero: Array
    step: Array  # the distance of two levels
    clipped: Array  # the largest distance of a clipped value from the last level
    scale_error: Array  # of a level, times which it counts
    rest: Array


def _group_bounds(blocks: Blocks, dtype: str, groups: Array, refitted: bool) -> _GroupBounds:
    np = require_numpy()
    rule = _LEVELS[dtype]
    in_block = groups // blocks.levels.shape[1]
    scale = blocks.scale.reshape(-1)[groups].astype("f8")
    block_scale, block_minimum = (
        np.zeros(1) if x is None else np.abs(x.reshape(-1)[in_block].astype("f8"))
        for x in (blocks.super_scale, blocks.super_minimum)
    )
    size = np.abs(scale)
    error = (
        _scale_error(blocks, dtype, size, block_scale)
        if rule.rounds_scale_last
        else np.zeros(len(size))
    )
    clipped = (4 if refitted else rule.beyond) * (size + error + block_scale)
    if blocks.super_scale is not None:
        clipped += (rule.high - rule.low) * block_scale + block_minimum
    minimum = (
        np.zeros(1)
        if blocks.minimum is None
        else np.abs(blocks.minimum.reshape(-1)[groups].astype("f8"))
    )
    rest = (
        _SLACK * ((rule.high - rule.low) * size + minimum)
        + _F16_STEP
        + np.where(size, 0.0, rule.high * error)
    )
    if blocks.minimum is not None and rule.rounds_scale_last:
        rest += float_radius(minimum, "F16", np.True_)
    return _GroupBounds(
        scale > 0,
        size == 0,
        (size + error) * (3 if refitted else 1),
        clipped,
        np.where(size, error, 0.0),
        rest,
    )


def _scale_error(blocks: Blocks, dtype: str, size: Array, block_scale: Array) -> Any:
    """Return the largest error of scales that were rounded to the dtype that they are stored in."""
    np = require_numpy()
    if dtype == "NVFP4":
        return np.maximum(size * 2.0**-4, 2.0**-11)
    if blocks.super_scale is None:
        return float_radius(size, "F16", np.True_)
    return float_radius(block_scale, "F16", np.True_) * size / np.where(block_scale, block_scale, 1)


def _half_gaps(rule: _Levels, level: Array) -> tuple[Any, Any]:
    """Return half the distance from each level to the one below and above."""
    if not rule.gaps:
        return 0.5, 0.5
    np = require_numpy()
    levels = np.array(rule.gaps, "f8")
    gaps = (
        np.concatenate((levels[1:2] - levels[:1], np.diff(levels), levels[-1:] - levels[-2:-1])) / 2
    )
    index = np.searchsorted(levels, level)
    return gaps[index], gaps[index + 1]
