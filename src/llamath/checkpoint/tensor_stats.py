"""Statistics of stored values, computed from bytes that arrive in order: values that are not
finite, equal rows, norms, fingerprints.

A float is examined as the integer that its bits are. One whose exponent bits are all ones is NaN or
infinite, so that the largest integer of a block shows whether there is any. Shifted to the place of
a float32's bits, it is a float32 that is smaller by a power of two, from which norms are computed.
Blocks are small enough for a processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, NamedTuple

from .formats.dtypes import DTYPES
from .formats.manifest import Tensor
from .formats.number_arrays import require_numpy
from .quantization.ggml_values import FLOAT16_OFFSETS

np = require_numpy()
Array = Any
"""A numpy array."""

_BLOCK_BYTES = 256 << 10
"""Bytes that are examined at once."""
LONG_ROW = 4 << 20
"""Rows with more bytes are examined in pieces."""
_MIN_WIDTH = 8
"""Shorter rows are merged with the others of their matrix, since a few values may be equal by
chance."""
MAX_EXAMPLES = 8
"""The most rows that are remembered for a kind of finding."""
_MAX_UNITS = 1 << 14
"""The most experts whose statistics are kept apart."""
_MAX_OVERLAPPING = 64
"""The most tensors that share bytes, as those of torch files may."""
_WORD = (1 << 64) - 1
_TINY, _HUGE = 1e-30, 1e30
"""Sums of squares outside of this range are computed in float64."""


class _FloatFormat(NamedTuple):
    """Bits of a floating-point type."""

    bytes: int
    mantissa: int  # bits
    bias: int  # of the exponent
    first_bad: int  # the smallest absolute value, as an integer, that is not finite
    has_infinity: bool = True  # that value is infinity, and larger ones are NaN


_FORMATS = {
    "F64": _FloatFormat(8, 52, 1023, 0x7FF0_0000_0000_0000),
    "F32": _FloatFormat(4, 23, 127, 0x7F80_0000),
    "C64": _FloatFormat(4, 23, 127, 0x7F80_0000),
    "F16": _FloatFormat(2, 10, 15, 0x7C00),
    "BF16": _FloatFormat(2, 7, 127, 0x7F80),
    "F8_E5M2": _FloatFormat(1, 2, 15, 0x7C),
    "F8_E4M3": _FloatFormat(1, 3, 7, 0x7F, False),
    "F8_E4M3FNUZ": _FloatFormat(1, 3, 8, 0x80, False),
    "F8_E5M2FNUZ": _FloatFormat(1, 2, 16, 0x80, False),
    "F8_E8M0": _FloatFormat(1, 0, 127, 0xFF, False),
}
_NAN_IS_NEGATIVE_ZERO = frozenset(("F8_E4M3FNUZ", "F8_E5M2FNUZ"))
_UNSIGNED = "F8_E8M0"
_E2M1_PAIR = 0x77
"""The bits of two E2M1 values without their signs."""


class _BlockScales(NamedTuple):
    """The dtype of the scales in a block of a ggml type, and their offsets."""

    dtype: str
    offsets: tuple[int, ...]


_BLOCK_SCALES = {
    **{name: _BlockScales("F16", offsets) for name, offsets in FLOAT16_OFFSETS.items()},
    **{
        name: _BlockScales("F16", (0,))
        for name in (
            "IQ1_S",
            "IQ2_XXS",
            "IQ2_XS",
            "IQ2_S",
            "IQ3_XXS",
            "IQ3_S",
            "IQ4_XS",
            "Q1_0",
            "Q2_0",
        )
    },
    "Q8_1": _BlockScales("F16", (0, 2)),
    "Q8_K": _BlockScales("F32", (0,)),
    "MXFP4": _BlockScales("F8_E8M0", (0,)),
    "NVFP4": _BlockScales("F8_E4M3", (0, 1, 2, 3)),
    "IQ1_M": _BlockScales("IQ1_M", (48,)),
}
"""The scales of ggml's block types (ggml-common.h); llama.cpp's `--check-tensors` examines the
same ones."""
BLOCK_TYPES = frozenset(_BLOCK_SCALES)


class BadRow(NamedTuple):
    """A row with values that are not finite; of a tensor of block types, with such scales."""

    row: int
    nan: int
    infinite: int


class TensorStats:
    """The statistics of one tensor; a stack of experts has some of them for each expert, which
    is a unit then.
    """

    def __init__(self, tensor: Tensor, kind: str, *, swap: bool = False) -> None:
        self.tensor, self.kind, self._swap = tensor, kind, swap
        self.complete = False
        self.nan = self.infinite = self.zero_rows = self.constant_rows = 0
        self.bad_rows: list[BadRow] = []
        self.zero_examples: list[int] = []
        self.constant_examples: list[int] = []
        self.narrower = {"BF16", "F16"} if kind == "F32" and not swap else set()
        self.rows, self.row_bytes, self.units = _row_layout(tensor, kind)
        self.rows_per_unit = max(1, self.rows // self.units)
        self.squares = np.zeros(self.units)
        self.fingerprints = [0] * self.units
        self._is_equal = np.ones(self.units, bool)
        self._first: list[int | None] = [None] * self.units
        self._is_long = self.row_bytes > LONG_ROW
        self._piece_bytes = LONG_ROW if self._is_long else max(1, self.row_bytes)
        self._carry = bytearray()
        # the next row, or the next piece of long rows; the bytes received
        self._row = self._bytes = 0

    @property
    def unit_bytes(self) -> int:
        """The bytes of one unit."""
        return self.tensor.bytes // self.units

    @property
    def is_constant(self) -> bool:
        """Whether all values are equal."""
        return bool(self._is_equal.all()) and len(set(self._first)) == 1

    @property
    def is_zero(self) -> bool:
        """Whether all values are zero."""
        return self.is_constant and self._first[0] == 0

    def is_constant_unit(self, unit: int) -> bool:
        """Whether all values of a unit are equal."""
        return bool(self._is_equal[unit])

    def is_zero_unit(self, unit: int) -> bool:
        """Whether all values of a unit are zero."""
        return bool(self._is_equal[unit]) and self._first[unit] == 0

    def norm(self, unit: int | None = None) -> float:
        """The Frobenius norm of a unit or of all, of block types that of the scales; NaN if some
        values are not finite.
        """
        squares = self.squares.sum() if unit is None else self.squares[unit]
        return float("nan") if self.nan or self.infinite else float(np.sqrt(squares))

    def feed(self, data: memoryview) -> None:
        """Examine the next bytes."""
        self._bytes += len(data)
        if self._carry:
            needed = self._piece_bytes - len(self._carry)
            self._carry += data[:needed]
            data = data[needed:]
            if len(self._carry) < self._piece_bytes:
                return
            self._examine(self._carry)
            self._carry = bytearray()
        whole = len(data) - len(data) % self._piece_bytes
        if whole:
            self._examine(data[:whole])
        self._carry += data[whole:]

    def finish(self) -> None:
        """Examine what is left."""
        if self._carry:
            self._examine(self._carry)
        self._carry = bytearray()
        self.complete = self._bytes == self.tensor.bytes

    def _examine(self, data: bytearray | memoryview) -> None:
        """Examine whole rows, or one piece of a long row."""
        size = min(self._piece_bytes, len(data))
        raw = np.frombuffer(data, np.uint8).reshape(-1, size)
        while len(raw):
            unit = 0 if self.units == 1 else min(self._row // self.rows_per_unit, self.units - 1)
            count = (
                len(raw)
                if self.units == 1
                else min(len(raw), (unit + 1) * self.rows_per_unit - self._row)
            )
            self._examine_unit(unit, raw[:count])
            self._row += count
            raw = raw[count:]

    def _examine_unit(self, unit: int, rows: Array) -> None:
        """Examine rows of one unit, in parts that stay in the processor's cache."""
        step = max(1, _BLOCK_BYTES // rows.shape[1])
        for at in range(0, len(rows), step):
            part = rows[at : at + step]
            words = part.reshape(-1)
            words = words.view(np.uint64) if rows.shape[1] % 8 == 0 else words
            self.fingerprints[unit] = (
                self.fingerprints[unit] + int(words.sum(dtype=np.uint64))
            ) & _WORD
            if self.kind in _FORMATS:
                self._examine_floats(
                    unit,
                    self._row + at,
                    _as_unsigned(part, _FORMATS[self.kind].bytes, self._swap),
                    self.kind,
                )
            elif self.kind in _BLOCK_SCALES:
                self._examine_blocks(unit, self._row + at, part)
            elif self._is_equal[unit]:
                self._record_unit(unit, int(part[0, 0]), bool((part == part[0, 0]).all()))
        if self.kind in _FORMATS:
            self._record_equal_rows(
                unit,
                self._row,
                _as_unsigned(rows, _FORMATS[self.kind].bytes, self._swap),
                _magnitude_bits(self.kind),
            )

    def _examine_floats(self, unit: int, row: int, values: Array, kind: str) -> None:
        """Add the squares of the values, or count those that are not finite."""
        form = _FORMATS[kind]
        if _has_bad(values, form, kind):
            nan, infinite = _nan_and_infinite(values, form, kind)
            self.nan += int(nan.sum())
            self.infinite += int(infinite.sum())
            self._record_bad_rows(row, nan, infinite)
        else:
            self.squares[unit] += _sum_of_squares(values.reshape(-1), form, kind)
        if self.narrower:
            self.narrower -= _lossy_types(values.reshape(-1))

    def _examine_blocks(self, unit: int, row: int, part: Array) -> None:
        """Examine the scales of blocks; the blocks of a row whose scales are all zero are all
        zero.
        """
        scales, kind = _scales_of_blocks(part, self.kind, self._swap)
        self._examine_floats(unit, row, scales, kind)
        if kind in ("F16", "F32"):
            self._record_equal_rows(unit, row, scales, _magnitude_bits(kind), zeros_only=True)
        else:  # the scales of these types are never zero
            values = part.reshape(len(part), -1, DTYPES[self.kind].bytes)[
                :, :, len(_BLOCK_SCALES[self.kind].offsets) :
            ]
            self._record_equal_rows(
                unit, row, values.reshape(len(part), -1), _E2M1_PAIR, zeros_only=True
            )

    def _record_bad_rows(self, row: int, nan: Array, infinite: Array) -> None:
        """Record the first rows with values that are not finite; a piece of a long row may
        belong to several rows.
        """
        bad = nan | infinite
        if not self._is_long:
            for i in np.flatnonzero(bad.any(axis=1))[: MAX_EXAMPLES - len(self.bad_rows)]:
                self.bad_rows.append(
                    BadRow(row + int(i), int(nan[i].sum()), int(infinite[i].sum()))
                )
        elif self.kind in _FORMATS:
            places = np.flatnonzero(bad)
            rows = (row * self._piece_bytes + places * _FORMATS[self.kind].bytes) // self.row_bytes
            for x in np.unique(rows)[:MAX_EXAMPLES]:
                inside = places[rows == x]
                counts = BadRow(
                    int(x),
                    int(nan.reshape(-1)[inside].sum()),
                    int(infinite.reshape(-1)[inside].sum()),
                )
                if self.bad_rows and self.bad_rows[-1].row == x:
                    last = self.bad_rows.pop()
                    counts = BadRow(
                        last.row, last.nan + counts.nan, last.infinite + counts.infinite
                    )
                if len(self.bad_rows) < MAX_EXAMPLES:
                    self.bad_rows.append(counts)

    def _record_equal_rows(
        self, unit: int, row: int, values: Array, magnitude: int, *, zeros_only: bool = False
    ) -> None:
        """Record the rows whose values are all zero or all equal; a few values of each row show
        which rows may be.
        """
        mask, width = values.dtype.type(magnitude), values.shape[1]
        first = values[:, 0] & mask
        maybe = np.ones(len(values), bool)
        for column in {width // 3, width // 2, width - 1}:
            maybe &= values[:, column] & mask == first
        found = np.flatnonzero(maybe)
        zero = found[first[found] == 0]
        zero = zero[~(values[zero] & mask).any(axis=1)] if len(zero) else zero
        equal = zero
        if not zeros_only and len(found):
            equal = np.union1d(zero, found[(values[found] == values[found, :1]).all(axis=1)])
        if not self._is_long:
            constant = np.setdiff1d(equal, zero, assume_unique=True)
            self.zero_rows += len(zero)
            self.constant_rows += len(constant)
            self.zero_examples += [
                row + int(x) for x in zero[: MAX_EXAMPLES - len(self.zero_examples)]
            ]
            self.constant_examples += [
                row + int(x) for x in constant[: MAX_EXAMPLES - len(self.constant_examples)]
            ]
        if self._is_equal[unit]:
            is_zero = len(zero) == len(values)
            is_equal = is_zero or (
                len(equal) == len(values) and bool((values[:, 0] == values[0, 0]).all())
            )
            self._record_unit(unit, 0 if is_zero else int(values[0, 0]), is_equal)

    def _record_unit(self, unit: int, value: int, is_equal: bool) -> None:
        """Record whether all values of a unit are equal so far."""
        first = self._first[unit]
        self._first[unit] = value if first is None else first
        self._is_equal[unit] = is_equal and first in (None, value)


def _magnitude_bits(kind: str) -> int:
    """Return the bits of a float without its sign; all of them where a zero has none."""
    has_negative_zero = kind != _UNSIGNED and kind not in _NAN_IS_NEGATIVE_ZERO
    return (1 << (8 * _FORMATS[kind].bytes - has_negative_zero)) - 1


def _row_layout(x: Tensor, kind: str) -> tuple[int, int, int]:
    """Return the number of rows, the bytes of a row, and the number of units: experts, if there
    are at least three dimensions.
    """
    if not x.shape or not x.elements:
        return (1 if x.elements else 0), x.bytes, 1
    if x.strides is not None:  # permuted: its bytes are in another order
        return 1, x.bytes, 1
    keep = len(x.shape) - 1
    while keep > 0 and prod(x.shape[keep:]) < _MIN_WIDTH and kind not in _BLOCK_SCALES:
        keep -= 1
    rows = prod(x.shape[:keep])
    units = (
        x.shape[0] if keep >= 2 and x.shape[0] <= _MAX_UNITS and x.bytes // rows <= LONG_ROW else 1
    )
    return rows, x.bytes // rows, units


def _as_unsigned(rows: Array, size: int, swap: bool) -> Array:
    """Return the rows of bytes as unsigned integers."""
    if rows.shape[1] % size:
        rows = rows[:, : rows.shape[1] - rows.shape[1] % size]
    unsigned = np.ascontiguousarray(rows).view(f"{'>' if swap else '<'}u{size}")
    return unsigned.astype(f"=u{size}") if swap and size > 1 else unsigned


def _has_bad(unsigned: Array, form: _FloatFormat, kind: str) -> bool:
    """Whether any value is not finite: as signed integers they are the largest positive ones, as
    unsigned ones the largest of all.
    """
    if not unsigned.size:
        return False
    if kind in _NAN_IS_NEGATIVE_ZERO:
        return bool((unsigned == form.first_bad).any())
    if kind == _UNSIGNED:
        return int(unsigned.max()) == form.first_bad
    sign = 1 << (8 * form.bytes - 1)
    return (
        int(unsigned.view(f"i{form.bytes}").max()) >= form.first_bad
        or int(unsigned.max()) >= sign + form.first_bad
    )


def _nan_and_infinite(unsigned: Array, form: _FloatFormat, kind: str) -> tuple[Array, Array]:
    """Return which values are NaN, and which are infinite."""
    is_whole = kind in _NAN_IS_NEGATIVE_ZERO or kind == _UNSIGNED
    magnitudes = unsigned if is_whole else unsigned & unsigned.dtype.type(_magnitude_bits(kind))
    first = magnitudes == form.first_bad
    return (
        (magnitudes > form.first_bad, first) if form.has_infinity else (first, np.zeros_like(first))
    )


def _lossy_types(bits: Array) -> set[str]:
    """Return the 16-bit types that cannot represent these float32 values."""
    lossy = {"BF16"} if int(np.bitwise_or.reduce(bits)) & 0xFFFF else set()
    sample = bits[:64].view(np.float32)
    with np.errstate(all="ignore"):
        for values in (sample, bits.view(np.float32)):  # most often a few values show it
            if not np.array_equal(
                values.astype(np.float16).astype(np.float32), values, equal_nan=True
            ):
                return lossy | {"F16"}
    return lossy


def _sum_of_squares(unsigned: Array, form: _FloatFormat, kind: str) -> float:
    """Return the sum of the squares of finite values."""
    if kind == _UNSIGNED:
        counts = np.bincount(unsigned, minlength=256)[:255]
        return float(counts @ np.ldexp(1.0, 2 * (np.arange(255) - form.bias)))
    with np.errstate(all="ignore"):
        found = sum(float(np.dot(x, x)) for x in _as_floats(unsigned, form))
        if _TINY < found < _HUGE:
            return found
        return sum(
            float(np.dot(y, y)) for x in _as_floats(unsigned, form) for y in (x.astype(np.float64),)
        )


def _as_floats(unsigned: Array, form: _FloatFormat) -> Iterator[Array]:
    """Yield the values, or their absolute values, as float32 or float64; several narrow values
    are taken from each 32-bit word.
    """
    if form.bytes >= 4:
        yield unsigned.view(f"f{form.bytes}")
        return
    per_word = 4 // form.bytes
    tail = unsigned.size % per_word
    words = unsigned[: unsigned.size - tail].view(np.uint32)
    bits = 8 * form.bytes
    mask = ((1 << (bits - 1)) - 1) << (23 - form.mantissa)
    scale = np.float32(2.0 ** (127 - form.bias))
    for values, lanes in (
        (words, per_word),
        (unsigned[unsigned.size - tail :].astype(np.uint32), 1),
    ):
        for lane in range(lanes if values.size else 0):
            shift = 23 - form.mantissa - lane * bits
            shifted = values << np.uint32(shift) if shift >= 0 else values >> np.uint32(-shift)
            shifted &= np.uint32(mask)
            floats = shifted.view(np.float32)
            if scale != 1:
                floats *= scale
            yield floats


def _scales_of_blocks(rows: Array, kind: str, swap: bool) -> tuple[Array, str]:
    """Return the scales in blocks of a ggml type as unsigned integers, and their dtype."""
    layout = _BLOCK_SCALES[kind]
    blocks = rows.reshape(len(rows), -1, DTYPES[kind].bytes)
    if kind == "IQ1_M":  # the high four bits of four 16-bit numbers
        parts = (
            np.ascontiguousarray(blocks[:, :, 48:56])
            .view(">u2" if swap else "<u2")
            .astype(np.uint16)
            >> 12
        )
        return parts[:, :, 0] | parts[:, :, 1] << 4 | parts[:, :, 2] << 8 | parts[
            :, :, 3
        ] << 12, "F16"
    size = _FORMATS[layout.dtype].bytes
    scales = [
        np.ascontiguousarray(blocks[:, :, x : x + size]).reshape(len(rows), -1)
        for x in layout.offsets
    ]
    return _as_unsigned(np.concatenate(scales, axis=1), size, swap), layout.dtype


def is_float(kind: str) -> bool:
    """Whether values of this dtype are examined as floats."""
    return kind in _FORMATS


class FileScan:
    """The tensors of one file, which receive its bytes in order."""

    def __init__(self, stats: Iterable[TensorStats]) -> None:
        self._waiting = sorted(stats, key=lambda x: x.tensor.start, reverse=True)
        self._active: list[TensorStats] = []

    def feed(self, start: int, data: memoryview) -> None:
        """Pass these bytes of the file on to the tensors that they belong to; of too many that
        overlap, the last are left out.
        """
        end = start + len(data)
        while self._waiting and self._waiting[-1].tensor.start < end:
            x = self._waiting.pop()
            if (
                len(self._active) < _MAX_OVERLAPPING
                or x.tensor.start >= self._active[-1].tensor.end
            ):
                self._active.append(x)
        for x in self._active:
            first, last = max(x.tensor.start, start), min(x.tensor.end, end)
            if first < last:
                x.feed(data[first - start : last - start])
            if x.tensor.end <= end:
                x.finish()
        self._active = [x for x in self._active if x.tensor.end > end]
