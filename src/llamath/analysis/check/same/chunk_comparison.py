"""Compares two chunks of a weight value by value: equal, within the rounding bounds of their
types, or beyond them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple

from ....checkpoint.canonical_reader import RowChunk
from ....checkpoint.formats.number_arrays import require_numpy
from ....checkpoint.quantization.rounding_bounds import CODEBOOK_ERRORS

Array = Any
"""A numpy array."""
_FINER = {
    ("F64", "F32"), ("F64", "F16"), ("F64", "BF16"), ("F32", "F16"), ("F32", "BF16"),
    ("F16", "F8_E4M3"), ("F16", "F8_E5M2"),
    ("BF16", "F8_E4M3"), ("BF16", "F8_E5M2"), ("F32", "F8_E4M3"), ("F32", "F8_E5M2"),
    ("F64", "F8_E4M3"), ("F64", "F8_E5M2"),
}  # fmt: skip
"""Pairs of dtypes of which the first has every value of the second."""


class GroupDifferences(NamedTuple):
    """How groups of quantized weights differ from the numbers beside them."""

    num_differing: int
    first: int  # position of the first that differs
    # sums of squares; not finite if a value is not, and then nothing else holds
    square_difference: float
    square_value: float
    square_number: float
    largest: float
    largest_share: float  # of the radius of its group
    beyond: Array  # positions of those that are further apart than the radius


CompareGroups = Callable[[Array, Array, Array | None, Array, Array, str], GroupDifferences | None]
"""Compares levels, scales and minimums `[blocks, groups, …]`, by the radius of each group, with
numbers of a dtype; None if it cannot."""


class Tally:
    """What was found in the chunks of a weight."""

    def __init__(self) -> None:
        self.values = 0
        self.differing = 0
        self.beyond = 0  # of the rounding bounds
        self.rows: set[int] = set()  # rows with values beyond the bounds, up to a limit
        self.max_difference = 0.0
        self.largest_share = 0.0  # of a bound
        # position of the first value beyond its bound, or else of the first that differs
        self.first: int | None = None
        self.square_difference = self.square_a = self.square_b = 0.0  # of the chunks that differ
        # places of values that are not finite in only one of the two
        self.changed: set[tuple[int, int]] = set()
        self.codebook = ""  # type without a bound for single values
        # relative error up to which values beyond their bounds are rounding, too
        self.error_limit = 0.0

    def add(self, other: Tally) -> None:
        """Add what was found in later chunks."""
        if other.first is not None and (self.first is None or (other.beyond and not self.beyond)):
            self.first = other.first
        for name in ("values", "differing", "beyond", "square_difference", "square_a", "square_b"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("max_difference", "largest_share", "codebook", "error_limit"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        if len(self.rows) < _MAX_ROWS:
            self.rows |= other.rows
        if len(self.changed) < _MAX_ROWS:
            self.changed |= other.changed

    @property
    def relative_error(self) -> float:
        """The root mean square of the differences, relative to that of A, in the chunks that
        differ.
        """
        if not self.square_difference:
            return 0.0
        return sqrt(self.square_difference / self.square_a) if self.square_a else inf

    @property
    def cosine(self) -> float:
        """The cosine of the angle between A and B in the chunks that differ."""
        size = sqrt(self.square_a) * sqrt(self.square_b)
        return (self.square_a + self.square_b - self.square_difference) / 2 / size if size else 0.0

    @property
    def is_within(self) -> bool:
        """Whether all differences are within the rounding bounds."""
        if self.codebook:
            return self.relative_error <= CODEBOOK_ERRORS[self.codebook] and not self.changed
        return not self.beyond or self._is_moved

    @property
    def _is_moved(self) -> bool:
        """Whether nearly all values differ, none by many steps and all together as little as
        quantizers like GPTQ cause.
        """
        differ = self.differing * 10 >= self.values * 9 and not self.changed
        return (
            differ and self.largest_share <= _MAX_MOVED and self.relative_error <= self.error_limit
        )


_MAX_ROWS = 4096
_MAX_MOVED = 12
"""The most half steps that a quantizer may move a value."""


_SMALLEST = 2.0**-126
"""The smallest normal float32."""
_SPARSE = 8
"""If fewer than one in this many values differ, only they are looked at."""


def compare_chunks(
    a: RowChunk,
    b: RowChunk,
    first_row: int,
    width: int,
    tally: Tally,
    compare_groups: CompareGroups | None = None,
) -> None:
    """Add the comparison of two chunks with the same rows to a tally; `compare_groups` does in
    one pass what numpy does in many.
    """
    np = require_numpy()
    if (
        a.bits is not None
        and b.bits is not None
        and a.dtype == b.dtype
        and _equal_bytes(a.bits, b.bits)
    ):
        tally.values += a.bits.size
        return
    if (
        compare_groups is not None
        and _has_groups(a, b)
        and _compare_groups(a, b, first_row, width, tally, compare_groups)
    ):
        return
    x, y = a.values, b.values
    tally.values += x.size
    unequal = x != y
    count = int(np.count_nonzero(unequal))
    if not count:
        return
    square = inf
    if count * _SPARSE > x.size:
        with np.errstate(invalid="ignore", over="ignore"):
            difference = y - x
            square = float(np.dot(difference, difference))
    if isfinite(square):
        _note_first(tally, int(np.argmax(unequal)), first_row, width)
        tally.differing += count
        tally.square_difference += square
        square_a, square_b = float(np.dot(x, x)), float(np.dot(y, y))
        if _codebook(a, b):
            candidates = None
            tally.max_difference = max(tally.max_difference, _max_size(difference))
        else:
            find = _find_in_groups if _has_groups(a, b) else _find_candidates
            candidates = find(a, b, difference, tally)
    else:
        positions = np.flatnonzero(unequal)
        positions = positions[~(np.isnan(x[positions]) & np.isnan(y[positions]))]
        if not len(positions):
            return
        tally.differing += len(positions)
        square_a, square_b = _add_sparse(x, y, positions, first_row, width, tally)
        candidates = positions if not _codebook(a, b) else None
        _note_first(tally, int(positions[0]), first_row, width)
    tally.square_a += square_a
    tally.square_b += square_b
    tally.error_limit = max(a.error_limit, b.error_limit)
    if candidates is None:
        tally.codebook = _codebook(a, b)
    elif len(candidates):
        _check_bounds(a, b, candidates, first_row, width, tally)


def _compare_groups(
    a: RowChunk, b: RowChunk, first_row: int, width: int, tally: Tally, compare: CompareGroups
) -> bool:
    """Do the same for chunks of which one has groups; False if something is not finite, or the
    function cannot compare them.
    """
    np = require_numpy()
    groups, other = (a, b) if a.is_quantized else (b, a)
    if other.bits is None or _codebook(a, b):
        return False
    radius = np.maximum(groups.group_radius, _SMALLEST)
    found = compare(*groups.group_parts, radius, other.bits.reshape(-1), other.dtype)
    if found is None or not isfinite(
        found.square_difference + found.square_value + found.square_number
    ):
        return False
    tally.values += other.bits.size
    if not found.num_differing:
        return True
    _note_first(tally, found.first, first_row, width)
    tally.differing += found.num_differing
    tally.square_difference += found.square_difference
    square_a, square_b = (
        (found.square_value, found.square_number)
        if groups is a
        else (found.square_number, found.square_value)
    )
    tally.square_a += square_a
    tally.square_b += square_b
    tally.error_limit = max(a.error_limit, b.error_limit)
    tally.max_difference = max(tally.max_difference, found.largest)
    tally.largest_share = max(tally.largest_share, min(1.0, found.largest_share))
    if len(candidates := found.beyond):
        distance = other.values_at(candidates) - groups.values_at(candidates)
        candidates = candidates[~groups.surely_within(candidates, distance)]
    if len(candidates):
        _check_bounds(a, b, candidates, first_row, width, tally)
    return True


def _find_candidates(a: RowChunk, b: RowChunk, difference: Array, tally: Tally) -> Array:
    """Return the positions of differences that are not surely within their bounds; `difference`
    is overwritten.
    """
    np = require_numpy()
    sure, size = _sure_radius(a, b), np.abs(difference, out=difference)
    tally.max_difference = max(tally.max_difference, float(size.max()))
    candidates = np.flatnonzero(~(size <= sure))
    if isinstance(sure, np.ndarray):
        share = np.divide(size, sure, out=size, where=sure > 0)
        tally.largest_share = max(tally.largest_share, min(1.0, float(share.max())))
    return candidates


def _has_groups(a: RowChunk, b: RowChunk) -> bool:
    """Whether one of the chunks is of a block type and its groups are in order."""
    if (
        a.is_quantized == b.is_quantized
        or a.word
        or b.word
        or a.error is not None
        or b.error is not None
    ):
        return False
    return (a if a.is_quantized else b).has_groups


def _find_in_groups(a: RowChunk, b: RowChunk, difference: Array, tally: Tally) -> Array:
    """Do the same with one radius for each group of values; few values have to be looked at one
    by one.
    """
    np = require_numpy()
    tally.max_difference = max(tally.max_difference, _max_size(difference))
    groups = a if a.is_quantized else b
    sure = groups.group_radius
    with np.errstate(over="ignore"):
        shares = difference.reshape(len(sure), -1) * (1 / np.maximum(sure, _SMALLEST))[:, None]
    largest = float(np.abs(shares, out=shares).max())
    tally.largest_share = max(tally.largest_share, min(1.0, largest))
    if largest <= 1:
        return np.zeros(0, "i8")
    candidates = np.flatnonzero(shares > 1)
    distance = difference[candidates]
    return candidates[~groups.surely_within(candidates, distance if groups is a else -distance)]


def _max_size(x: Array) -> float:
    """Return the largest absolute value, in less time than with an array of absolute values."""
    return max(float(x.max()), -float(x.min()))


def _equal_bytes(x: Array, y: Array) -> bool:
    np = require_numpy()
    kind = "u8" if x.flags.c_contiguous and y.flags.c_contiguous and x.nbytes % 8 == 0 else "u1"
    return bool(
        (
            np.ascontiguousarray(x).reshape(-1).view(kind)
            == np.ascontiguousarray(y).reshape(-1).view(kind)
        ).all()
    )


def _codebook(a: RowChunk, b: RowChunk) -> str:
    return next((x.dtype for x in (a, b) if x.dtype in CODEBOOK_ERRORS), "")


def _add_sparse(
    x: Array, y: Array, positions: Array, first_row: int, width: int, tally: Tally
) -> tuple[float, float]:
    """Add the differences of few values, or of values that are not finite; returns the squares
    of both chunks.
    """
    np = require_numpy()
    one, other = x[positions].astype("f8"), y[positions].astype("f8")
    finite = np.isfinite(one) & np.isfinite(other)
    tally.changed |= {
        (first_row + int(i) // width, int(i) % width) for i in positions[~finite][:16]
    }
    one, other = one[finite], other[finite]
    with np.errstate(over="ignore"):
        difference = other - one
        tally.square_difference += float(np.dot(difference, difference))
        if len(difference):
            tally.max_difference = max(tally.max_difference, float(np.abs(difference).max()))
        squares = [float(np.dot(v, v)) for v in (x, y)]
        if all(map(isfinite, squares)):
            return squares[0], squares[1]
        kept = np.isfinite(x) & np.isfinite(y)
        return float(np.square(x[kept].astype("f8")).sum()), float(
            np.square(y[kept].astype("f8")).sum()
        )


def _check_bounds(
    a: RowChunk, b: RowChunk, candidates: Array, first_row: int, width: int, tally: Tally
) -> None:
    """Add the values whose difference is larger than their bound."""
    np = require_numpy()
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        radius = combined_radius(a, b, candidates)
        size = np.abs(a.values[candidates].astype("f8") - b.values[candidates])
        wrong = candidates[~(size <= radius)]
        tally.largest_share = max(
            tally.largest_share, float(np.nan_to_num(size / radius, posinf=inf).max())
        )
    if len(wrong):
        if not tally.beyond:
            tally.first = None
        tally.beyond += len(wrong)
        if len(tally.rows) < _MAX_ROWS:
            tally.rows.update((first_row + np.unique(wrong // width)[:_MAX_ROWS]).tolist())
        _note_first(tally, int(wrong[0]), first_row, width)


def _note_first(tally: Tally, position: int, first_row: int, width: int) -> None:
    if tally.first is None:
        tally.first = first_row * width + position


def _rounds(a: RowChunk, b: RowChunk) -> tuple[str, str]:
    """Return for both chunks the plain dtype whose rounding counts: `own`, another one, or empty if
    they are exact.

    Of two plain dtypes, the coarser was rounded; two chunks of one plain dtype are copies. A block
    type was rounded, and the plain dtype that it is compared with, too: quantizers often read an
    F16 file. Values that were computed have a bound of their own.
    """
    if a.word or b.word or a.error is not None or b.error is not None:
        return "own", "own"
    if a.is_quantized or b.is_quantized:
        return tuple(
            "own"
            if x.is_quantized or x.dtype not in ("F32", "F64")
            else ""
            if x.is_packed
            else "F16"
            for x in (a, b)
        )  # type: ignore[return-value]
    if a.is_packed or b.is_packed:
        return "" if a.is_packed else _unless_float32(a), "" if b.is_packed else _unless_float32(b)
    if a.dtype == b.dtype:
        return "", ""
    return ("own" if (a.dtype, b.dtype) not in _FINER else ""), (
        "own" if (b.dtype, a.dtype) not in _FINER else ""
    )


def _unless_float32(x: RowChunk) -> str:
    return "" if x.dtype in ("F32", "F64") else "own"


def _sure_radius(a: RowChunk, b: RowChunk) -> Array:
    """Return differences that are surely within the bounds: those of block types if there are
    any, which are much wider.
    """
    has_blocks = a.is_quantized or b.is_quantized
    sure: Array = 0
    for x, rule in zip((a, b), _rounds(a, b), strict=True):
        if rule and x.has_bound and not x.word and x.is_quantized >= has_blocks:
            sure = sure + x.sure_radius("" if rule == "own" else rule)
    return sure


def combined_radius(a: RowChunk, b: RowChunk, positions: Array) -> Array:
    """Return the largest difference that rounding explains at these positions."""
    np = require_numpy()
    upward = b.values[positions] > a.values[positions]
    radius = np.zeros(len(positions))
    for x, rule, direction in zip((a, b), _rounds(a, b), (upward, ~upward), strict=True):
        if rule and x.has_bound:
            radius += x.radius(positions, direction, "" if rule == "own" else rule)
    return radius
