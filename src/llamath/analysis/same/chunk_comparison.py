"""Compares two chunks of a weight value by value: equal, within the rounding bounds of their types, or beyond them."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from ...checkpoint.canonical_reader import RowChunk
from ...checkpoint.formats.number_arrays import require_numpy
from ...checkpoint.quantization.rounding_bounds import CODEBOOK_ERRORS

Array = Any
"""A numpy array."""
_FINER = {
    ("F64", "F32"), ("F64", "F16"), ("F64", "BF16"), ("F32", "F16"), ("F32", "BF16"), ("F16", "F8_E4M3"), ("F16", "F8_E5M2"),
    ("BF16", "F8_E4M3"), ("BF16", "F8_E5M2"), ("F32", "F8_E4M3"), ("F32", "F8_E5M2"), ("F64", "F8_E4M3"), ("F64", "F8_E5M2"),
}  # fmt: skip
"""Pairs of dtypes of which the first has every value of the second."""


class Tally:
    """What was found in the chunks of a weight."""

    def __init__(self) -> None:
        self.values = 0
        self.differing = 0
        self.beyond = 0  # of the rounding bounds
        self.rows: set[int] = set()  # rows with values beyond the bounds, up to a limit
        self.max_difference = 0.0
        self.largest_share = 0.0  # of a bound
        self.first: int | None = None  # position of the first value beyond its bound, or else of the first that differs
        self.square_difference = self.square_a = self.square_b = self.product = 0.0  # of the chunks that differ
        self.changed: set[tuple[int, int]] = set()  # places of values that are not finite in only one of the two
        self.codebook = ""  # type without a bound for single values

    def add(self, other: Tally) -> None:
        """Add what was found in later chunks."""
        if other.first is not None and (self.first is None or (other.beyond and not self.beyond)):
            self.first = other.first
        for name in ("values", "differing", "beyond", "square_difference", "square_a", "square_b", "product"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("max_difference", "largest_share", "codebook"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        if len(self.rows) < _MAX_ROWS:
            self.rows |= other.rows
        if len(self.changed) < _MAX_ROWS:
            self.changed |= other.changed

    @property
    def relative_error(self) -> float:
        """The root mean square of the differences, relative to that of A, in the chunks that differ."""
        if not self.square_difference:
            return 0.0
        return sqrt(self.square_difference / self.square_a) if self.square_a else inf

    @property
    def cosine(self) -> float:
        """The cosine of the angle between A and B in the chunks that differ."""
        size = sqrt(self.square_a) * sqrt(self.square_b)
        return self.product / size if size else 0.0

    @property
    def is_within(self) -> bool:
        """Whether all differences are within the rounding bounds."""
        if self.codebook:
            return self.relative_error <= CODEBOOK_ERRORS[self.codebook] and not self.changed
        return not self.beyond


_MAX_ROWS = 4096


def compare_chunks(a: RowChunk, b: RowChunk, first_row: int, width: int, tally: Tally) -> None:
    """Add the comparison of two chunks with the same rows to a tally."""
    np = require_numpy()
    if a.bits is not None and b.bits is not None and a.dtype == b.dtype and np.array_equal(a.bits.view("u1"), b.bits.view("u1")):
        tally.values += a.bits.size
        return
    x, y = a.values, b.values
    tally.values += x.size
    if np.array_equal(x, y):
        return
    with np.errstate(invalid="ignore", over="ignore"):
        difference = y - x
        beyond = _unequal_to_sure_radius(a, b, np.abs(difference))
    positions = np.flatnonzero(~((x == y) | (np.isnan(x) & np.isnan(y))))
    if not len(positions):
        return
    tally.differing += len(positions)
    finite = np.isfinite(difference)
    if not finite.all():
        broken = positions[~np.isfinite(x[positions]) | ~np.isfinite(y[positions])]
        tally.changed |= {(first_row + int(i) // width, int(i) % width) for i in broken[:16]}
        x, y, difference = np.where(finite, x, 0), np.where(finite, y, 0), np.where(finite, difference, 0)
    tally.max_difference = max(tally.max_difference, float(np.abs(difference).max()))
    tally.square_difference += _dot(difference, difference)
    tally.square_a += _dot(x, x)
    tally.square_b += _dot(y, y)
    tally.product += _dot(x, y)
    codebook = next((c.dtype for c in (a, b) if c.dtype in CODEBOOK_ERRORS), "")
    if codebook:
        tally.codebook = codebook
        _note_first(tally, int(positions[0]), first_row, width)
        return
    candidates = positions[beyond[positions]]
    if len(candidates):
        radius = combined_radius(a, b, candidates)
        size = np.abs(a.values[candidates].astype("f8") - b.values[candidates])
        wrong = candidates[~(size <= radius)]
        with np.errstate(divide="ignore", invalid="ignore"):
            tally.largest_share = max(tally.largest_share, float(np.nan_to_num(size / radius, posinf=inf).max()))
        if len(wrong):
            if not tally.beyond:
                tally.first = None
            tally.beyond += len(wrong)
            if len(tally.rows) < _MAX_ROWS:
                tally.rows.update((first_row + np.unique(wrong // width)[:_MAX_ROWS]).tolist())
            _note_first(tally, int(wrong[0]), first_row, width)
    _note_first(tally, int(positions[0]), first_row, width)


def _note_first(tally: Tally, position: int, first_row: int, width: int) -> None:
    if tally.first is None:
        tally.first = first_row * width + position


def _dot(x: Array, y: Array) -> float:
    np = require_numpy()
    with np.errstate(over="ignore"):
        return float(np.dot(x, y))


def _rounds(a: RowChunk, b: RowChunk) -> tuple[str, str]:
    """Return for both chunks the plain dtype whose rounding counts: `own`, another one, or empty if they are exact.

    Of two plain dtypes, the coarser was rounded; two chunks of one plain dtype are copies. A block type was rounded, and the plain dtype
    that it is compared with, too: quantizers often read an F16 file. Values that were computed have a bound of their own.
    """
    if a.word or b.word or a.error is not None or b.error is not None:
        return "own", "own"
    if a.is_block_type or b.is_block_type:
        return tuple("own" if x.is_block_type or x.dtype not in ("F32", "F64") else "" if x.is_packed else "F16" for x in (a, b))  # type: ignore[return-value]
    if a.is_packed or b.is_packed:
        return "" if a.is_packed else _unless_float32(a), "" if b.is_packed else _unless_float32(b)
    if a.dtype == b.dtype:
        return "", ""
    return ("own" if (a.dtype, b.dtype) not in _FINER else ""), ("own" if (b.dtype, a.dtype) not in _FINER else "")


def _unless_float32(x: RowChunk) -> str:
    return "" if x.dtype in ("F32", "F64") else "own"


def _unequal_to_sure_radius(a: RowChunk, b: RowChunk, size: Array) -> Array:
    """Return where a difference is larger than what is surely within the bounds."""
    np = require_numpy()
    sure: Array = 0
    for x, rule in zip((a, b), _rounds(a, b), strict=True):
        if rule and x.has_bound and not x.word:
            sure = sure + x.sure_radius("" if rule == "own" else rule)
    return ~(size <= sure) if isinstance(sure, np.ndarray) else size != 0


def combined_radius(a: RowChunk, b: RowChunk, positions: Array) -> Array:
    """Return the largest difference that rounding explains at these positions."""
    np = require_numpy()
    upward = b.values[positions] > a.values[positions]
    radius = np.zeros(len(positions))
    for x, rule, direction in zip((a, b), _rounds(a, b), (upward, ~upward), strict=True):
        if rule and x.has_bound:
            radius += x.radius(positions, direction, "" if rule == "own" else rule)
    return radius
