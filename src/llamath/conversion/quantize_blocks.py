"""Quantization to ggml's block types, bit-identical to llama.cpp's reference (`quantize_row_*_ref`,
without an importance matrix).

ggml-quants.c computes in float32 and sums in the order of the elements. Here an operation runs on
all groups at once and a sum adds the elements one after another, so that every rounding is the
same: the arrays have one row for each element of a group, one column for each group. Numbers that
are not finite, and blocks whose scale is larger than float16 can be, are errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..checkpoint.formats.dtypes import DTYPES
from ..checkpoint.formats.number_arrays import require_numpy
from ..utils.errors import ConvertError

Array = Any
"""A numpy array."""
_STEP_BLOCKS = 256
"""Blocks to quantize at once, so that they stay in the processor's cache."""
_MIN_COLUMNS = 16
"""numpy adds the rows of an array with several columns one after another; those of a single
column in pairs."""
_MAGIC = 12582912.0
"""1.5 · 2²³: adding it rounds a float32 to an integer, ties to even."""
_GROUP_MAX_EPS = 1e-15
"""Groups whose largest absolute value is smaller are zeros."""


def quantize_blocks(data: bytes, dtype: str) -> bytes:
    """Return float32 numbers, whole blocks of them, in a block type."""
    np = require_numpy()
    block = DTYPES[dtype].block
    values = np.frombuffer(data, "<f4").reshape(-1, block)
    if not np.isfinite(values).all():
        raise ConvertError(
            f"{dtype} cannot represent NaN or infinity",
            hint="convert to F32, F16 or BF16, which keep them",
        )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        step = _STEP_BLOCKS * (256 // block)
        return b"".join(
            QUANTIZERS[dtype](np, values[i : i + step]).tobytes()
            for i in range(0, len(values), step)
        )


def _q8_0(np: Any, x: Array) -> Array:
    """A scale and 32 signed bytes."""
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    scaled = x * np.where(d == 0, np.float32(0), np.float32(1) / d)
    size = np.abs(scaled)
    whole = np.floor(size)
    rounded = whole + np.floor(np.float32(2) * (size - whole))  # half away from zero
    return _join(
        np, _float16(np, d, "Q8_0"), np.copysign(rounded, scaled).astype(np.int8).view(np.uint8)
    )


def _q4_0(np: Any, x: Array) -> Array:
    """A scale and 32 values of 4 bits with zero point 8; the largest value is −8 times the
    scale.
    """
    # a block of −0 has the scale −0
    d = (np.take_along_axis(x, np.abs(x).argmax(1, keepdims=True), 1) + np.float32(0)) / np.float32(
        -8
    )
    scaled = x * np.where(d == 0, np.float32(0), np.float32(1) / d)
    q = np.minimum(15, np.trunc(scaled + np.float32(8.5)).astype(np.int8)).view(np.uint8)
    return _join(np, _float16(np, d, "Q4_0"), q[:, :16] | q[:, 16:] << 4)


def _q5_0(np: Any, x: Array) -> Array:
    """Q4_0 with a fifth bit, stored separately, and zero point 16."""
    d = (np.take_along_axis(x, np.abs(x).argmax(1, keepdims=True), 1) + np.float32(0)) / np.float32(
        -16
    )
    scaled = x * np.where(d == 0, np.float32(0), np.float32(1) / d)
    q = np.minimum(31, np.trunc(scaled + np.float32(16.5)).astype(np.int8)).view(np.uint8)
    fifth = np.packbits(q >> 4, axis=1, bitorder="little")
    return _join(np, _float16(np, d, "Q5_0"), fifth, q[:, :16] & 15 | q[:, 16:] << 4)


def _q5_1(np: Any, x: Array) -> Array:
    """A scale, a minimum, and 32 values of 5 bits, the fifth stored separately."""
    # the first: 0 equals −0
    low, high = (
        np.take_along_axis(x, y, 1)
        for y in (x.argmin(1, keepdims=True), x.argmax(1, keepdims=True))
    )
    d = (high - low) / np.float32(31)
    scaled = (x - low) * np.where(d == 0, np.float32(0), np.float32(1) / d)
    q = np.trunc(scaled + np.float32(0.5)).astype(np.uint8)
    fifth = np.packbits(q >> 4 & 1, axis=1, bitorder="little")
    return _join(
        np,
        _float16(np, d, "Q5_1"),
        _float16(np, low, "Q5_1"),
        fifth,
        q[:, :16] & 15 | (q[:, 16:] & 15) << 4,
    )


def _q4_k(np: Any, x: Array) -> Array:
    """Eight groups of 32 values of 4 bits; their scales and minimums, of 6 bits, are multiples
    of the block's.
    """
    head, q = _quantize_affine(np, x, "Q4_K", levels=15, first=-1.0, steps=20)
    return _join(np, *head, (q[:, :, 0] | q[:, :, 1] << 4).reshape(-1, 128))


def _q5_k(np: Any, x: Array) -> Array:
    """Q4_K with a fifth bit of each value: bit g of 32 bytes is that of group g."""
    head, q = _quantize_affine(np, x, "Q5_K", levels=31, first=-0.5, steps=15)
    shifts = np.arange(8, dtype=np.uint8).reshape(8, 1)
    fifth = np.bitwise_or.reduce((q >> 4).reshape(-1, 8, 32) << shifts, axis=1)
    return _join(np, *head, fifth, (q[:, :, 0] & 15 | (q[:, :, 1] & 15) << 4).reshape(-1, 128))


def _quantize_affine(
    np: Any, x: Array, dtype: str, *, levels: int, first: float, steps: int
) -> tuple[tuple[Array, ...], Array]:
    """Return scale, minimum and packed multiples of them, and the values' levels, `[blocks, 4,
    2, 32]`.
    """
    groups = _as_columns(np, x, 32)
    scales, mins, q = _fit_scale_and_min(np, groups, levels, first, steps)
    scales, mins = scales[: 8 * len(x)].reshape(-1, 8), mins[: 8 * len(x)].reshape(-1, 8)
    largest_scale, largest_min = (
        np.maximum(scales.max(1, keepdims=True), 0),
        np.maximum(mins.max(1, keepdims=True), 0),
    )
    multiples = [
        np.minimum(
            63,
            _nearest_int(np, np.where(of > 0, np.float32(63) / of, np.float32(0)) * y).astype(
                np.uint8
            ),
        )
        for y, of in ((scales, largest_scale), (mins, largest_min))
    ]
    d, d_min = (_float16(np, y / np.float32(63), dtype) for y in (largest_scale, largest_min))
    scale, minimum = (
        _pad(np, (a.astype(np.float32) * b).reshape(-1))
        for a, b in zip((d, d_min), multiples, strict=True)
    )
    again = np.clip(_nearest_int(np, (groups + minimum) / scale), 0, levels)
    q = np.where(scale == 0, q, again).astype(np.uint8)[:, : 8 * len(x)].T.reshape(-1, 4, 2, 32)
    return (d, d_min, _pack_six_bits(np, *multiples)), q


def _q6_k(np: Any, x: Array) -> Array:
    """Sixteen groups of 16 values of 6 bits with zero point 32; their scales, of 8 bits, are
    multiples of the block's.
    """
    groups = _as_columns(np, x, 16)
    scales, q = _fit_scale(np, groups, 32)
    scales = scales[: 16 * len(x)].reshape(-1, 16)
    largest = np.take_along_axis(scales, np.abs(scales).argmax(1, keepdims=True), 1)
    is_zero = np.abs(largest) < np.float32(_GROUP_MAX_EPS)
    inverse = np.where(is_zero, np.float32(0), np.float32(-128) / largest)
    d = _float16(np, np.where(is_zero, np.float32(0), np.float32(1) / inverse), "Q6_K")
    levels = np.minimum(127, _nearest_int(np, inverse * scales)).astype(np.int8)
    scale = _pad(np, (d.astype(np.float32) * levels).reshape(-1))
    again = np.clip(_nearest_int(np, groups / scale), -32, 31) + 32
    q = np.where(scale == 0, q, again).astype(np.uint8)[:, : 16 * len(x)].T.reshape(-1, 2, 4, 32)
    q = np.where(is_zero.reshape(-1, 1, 1, 1), np.uint8(0), q)
    low, high = q & 15, q >> 4
    lows = np.concatenate((low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4), -1)
    highs = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return _join(np, lows.reshape(-1, 128), highs.reshape(-1, 64), levels.view(np.uint8), d)


QUANTIZERS: dict[str, Callable[[Any, Array], Array]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
"""The block types that can be written: each function takes `[blocks, elements]` and returns
`[blocks, bytes]`."""


def _fit_scale_and_min(
    np: Any, x: Array, levels: int, first: float, steps: int
) -> tuple[Array, Array, Array]:
    """Return scales, minimums and levels such that scale · level − minimum is near x
    (`make_qkx2_quants`).
    """
    squares = _sum_rows(np, x * x)
    w = np.sqrt(squares / np.float32(32)) + np.abs(x)
    low, high = np.minimum(x.min(0), 0), x.max(0)
    is_constant = high == low
    sum_w, sum_x = _sum_rows(np, w), _sum_rows(np, w * x)
    inverse = np.float32(levels) / (high - low)
    scale = np.float32(1) / inverse
    best = np.clip(np.rint(inverse * (x - low)), 0, levels)
    error = _weighted_error(np, x, w, best, scale, low)
    minimum = low
    for step in range(steps + 1):
        inverse = (np.float32(first) + np.float32(0.1) * np.float32(step) + np.float32(levels)) / (
            high - minimum
        )
        q = np.clip(np.rint(inverse * (x - minimum)), 0, levels)
        wq = w * q
        sum_q, sum_qq, sum_xq = _sum_rows(np, wq), _sum_rows(np, wq * q), _sum_rows(np, wq * x)
        determinant = sum_w * sum_qq - sum_q * sum_q
        own_scale = (sum_w * sum_xq - sum_x * sum_q) / determinant
        own_min = (sum_qq * sum_x - sum_q * sum_xq) / determinant
        is_positive = own_min > 0
        own_scale, own_min = (
            np.where(is_positive, sum_xq / sum_qq, own_scale),
            np.where(is_positive, np.float32(0), own_min),
        )
        own_error = _weighted_error(np, x, w, q, own_scale, own_min)
        is_better = (determinant > 0) & (own_error < error)
        best, error = np.where(is_better, q, best), np.where(is_better, own_error, error)
        scale, minimum = (
            np.where(is_better, own_scale, scale),
            np.where(is_better, own_min, minimum),
        )
    return (
        np.where(is_constant, np.float32(0), scale),
        -np.where(is_constant, low, minimum),
        np.where(is_constant, np.float32(0), best),
    )


def _weighted_error(np: Any, x: Array, w: Array, q: Array, scale: Array, minimum: Array) -> Array:
    difference = scale * q + minimum - x
    return _sum_rows(np, w * (difference * difference))


def _fit_scale(np: Any, x: Array, zero: int) -> tuple[Array, Array]:
    """Return scales and levels such that scale · (level − zero) is near x (`make_qx_quants`,
    weighted by x²).
    """
    largest = np.take_along_axis(x, np.abs(x).argmax(0, keepdims=True), 0)[0]
    is_zero = np.abs(largest) < np.float32(_GROUP_MAX_EPS)
    w = x * x
    wx = w * x

    def fit(nearest: Array) -> tuple[Array, Array, Array]:
        q = np.clip(np.rint(-nearest / largest * x), -zero, zero - 1)
        return q, _sum_rows(np, wx * q), _sum_rows(np, w * q * q)

    best, sum_xq, sum_qq = fit(np.float32(zero))
    scale = np.where(sum_qq != 0, sum_xq / sum_qq, np.float32(0))
    score = scale * sum_xq
    for step in (*range(-9, 0), *range(1, 10)):
        q, sum_xq, sum_qq = fit(np.float32(zero) + np.float32(0.1) * np.float32(step))
        is_better = (sum_qq > 0) & (sum_xq * sum_xq > score * sum_qq)
        own_scale = sum_xq / sum_qq
        best, scale = np.where(is_better, q, best), np.where(is_better, own_scale, scale)
        score = np.where(is_better, own_scale * sum_xq, score)
    return np.where(is_zero, np.float32(0), scale), np.where(is_zero, np.float32(0), best + zero)


def _as_columns(np: Any, x: Array, group: int) -> Array:
    """Return groups as columns, at least _MIN_COLUMNS of them."""
    return np.ascontiguousarray(_pad(np, x.reshape(-1, group).T))


def _pad(np: Any, x: Array) -> Array:
    """Append columns of zeros if there are fewer than _MIN_COLUMNS."""
    missing = _MIN_COLUMNS - x.shape[-1]
    return (
        x if missing <= 0 else np.concatenate((x, np.zeros((*x.shape[:-1], missing), x.dtype)), -1)
    )


def _sum_rows(np: Any, x: Array) -> Array:
    """Add the rows one after another, as a loop over the elements of a group does."""
    return np.add.reduce(x, axis=0)


def _nearest_int(np: Any, x: Array) -> Array:
    """Round to the nearest integer, ties to even, as ggml does: numbers from 2²² on wrap around."""
    return ((x + np.float32(_MAGIC)).view(np.int32) & 0x7FFFFF) - 0x400000


def _float16(np: Any, x: Array, dtype: str) -> Array:
    half = x.astype(np.float16)
    if not np.isfinite(half).all():
        raise ConvertError(
            f"{dtype} cannot represent a block of such values: its scale "
            f"{np.abs(x).max():g} is too large for float16"
        )
    return half


def _pack_six_bits(np: Any, scale: Array, minimum: Array) -> Array:
    """Pack eight scales and eight minimums of 6 bits in twelve bytes: the first four whole, the
    last four in two pieces.
    """
    first = scale[:, :4] | scale[:, 4:] >> 4 << 6
    second = minimum[:, :4] | minimum[:, 4:] >> 4 << 6
    return np.concatenate((first, second, scale[:, 4:] & 15 | (minimum[:, 4:] & 15) << 4), 1)


def _join(np: Any, *parts: Array) -> Array:
    """Concatenate the bytes of the parts of each block."""
    return np.concatenate(
        [np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1) for x in parts], 1
    )
