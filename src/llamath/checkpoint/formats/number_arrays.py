"""Stored numbers as numpy arrays, and as float32."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...utils.errors import MissingExtra
from .dtypes import PLAIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def require_numpy() -> Any:
    """Return numpy, or raise an error that says how to install it."""
    try:
        import numpy as np
    except ImportError:
        raise MissingExtra("numpy", "convert") from None
    return np


class StoredArray(NamedTuple):
    """A stored tensor: its dtype by the manifest's name, its shape, and its little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


def as_array(x: StoredArray) -> Any:
    """Return the stored numbers; BF16 and FP8 as their bits."""
    np = require_numpy()
    kind = {
        "F64": "<f8",
        "F32": "<f4",
        "F16": "<f2",
        "BF16": "<u2",
        "I8": "i1",
        "I16": "<i2",
        "I32": "<i4",
        "I64": "<i8",
        "U32": "<u4",
    }
    size = PLAIN[x.dtype].bytes if x.dtype in PLAIN else 1
    array = np.frombuffer(x.data, kind.get(x.dtype, f"<u{size}"))
    return array.reshape(*x.shape[:-1], -1) if x.dtype == "F4" else array.reshape(x.shape)


def to_float32(raw: Array, dtype: str) -> Any:
    """Return stored numbers as float32, exactly where it can hold them."""
    np = require_numpy()
    if dtype == "BF16":
        words = raw.astype(np.uint32)
        words <<= np.uint32(16)
        return words.view(np.float32)
    if dtype.startswith("F8_"):
        return float8_table(dtype)[raw]
    if dtype == "F16":
        return _widen_float16(raw)
    return raw.astype(np.float32)


def _widen_float16(raw: Array) -> Any:
    """Return float16 as float32, in a quarter of the time that numpy's conversion takes.

    Sign and exponent are moved to where float32 has them, and the difference of the exponents'
    biases is multiplied.
    """
    np = require_numpy()
    words = raw.view("<i2").astype(np.int32)
    words <<= 13
    words &= np.int32(0x8FFFE000 - (1 << 32))
    values = words.view(np.float32)
    values *= np.float32(2.0**112)
    # where float16 has infinity and NaN
    if values.size and max(values.max(), -values.min()) >= 1 << 16:
        return raw.astype(np.float32)
    return values


@cache
def float8_table(dtype: str) -> Any:
    """Return the 256 values of an 8-bit type."""
    np = require_numpy()
    if dtype == "F8_E8M0":
        table = np.ldexp(np.float64(1), np.arange(256) - 127)
        table[255] = np.nan
        return table.astype(np.float32)
    exponent_bits, mantissa_bits = (5, 2) if "E5M2" in dtype else (4, 3)
    bits = np.arange(256)
    sign = np.where(bits < 128, 1.0, -1.0)
    exponent, mantissa = (
        bits >> mantissa_bits & (1 << exponent_bits) - 1,
        bits & (1 << mantissa_bits) - 1,
    )
    bias = (1 << exponent_bits - 1) - (0 if dtype.endswith("FNUZ") else 1)
    normal = np.ldexp(1 + mantissa / (1 << mantissa_bits), exponent - bias)
    table = sign * np.where(
        exponent == 0, np.ldexp(mantissa / (1 << mantissa_bits), 1 - bias), normal
    )
    if dtype.endswith("FNUZ"):
        table[128] = np.nan
    elif dtype == "F8_E4M3":
        table[[127, 255]] = np.nan
    else:
        table[[0x7C, 0xFC]], table[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = (np.inf, -np.inf), np.nan
    return table.astype(np.float32)
