"""Numbers from one float type to another, as torch casts them: widening is exact, narrowing goes to the nearest, ties to even.

Where torch makes a finite number infinite, this refuses. NaN stays NaN: between F16 and F32 with its payload, quieted; in BF16 it keeps
its bits if they fit and is 0x7FC0 else, as in torch's plain code (its vectorised code writes 0xFFFF for the same NaN).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConvertError, MissingExtra

if TYPE_CHECKING:
    from numpy import bool_, float32
    from numpy.typing import NDArray

WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
"""The types that are converted, with their bytes."""


def cast(data: bytes, source: str, target: str) -> bytes:
    """These numbers in another type; an error says which of them it cannot hold."""
    if source == target:
        return data
    if source == "BF16":
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[::2], data[1::2]
        return cast(bytes(wide), "F32", target)
    if source == "F16":
        return cast(_wide(data), "F32", target)
    if target == "BF16" and exact(data, target):
        narrow = bytearray(len(data) // 2)
        narrow[::2], narrow[1::2] = data[2::4], data[3::4]
        return bytes(narrow)
    return _half(data) if target == "F16" else _brain(data)


def exact(data: bytes, target: str) -> bool:
    """Whether these F32 numbers, cast to a narrower type, are still the same."""
    if target == "BF16":
        count = len(data) // 4
        return data[::4].count(0) == count and data[1::4].count(0) == count
    try:
        return target == "F32" or _wide(_half(data)) == data
    except ConvertError:
        return False


def numpy() -> Any:
    """numpy, or an error that says how to get it."""
    try:
        import numpy as np
    except ImportError:
        raise MissingExtra("numpy", "convert") from None
    return np


def _wide(data: bytes) -> bytes:
    bits = numpy().frombuffer(data, "<f2").astype("<f4").view("<u4")
    bits[(bits & 0x7FFFFFFF) > 0x7F800000] |= 0x400000
    return bytes(bits.tobytes())


def _half(data: bytes) -> bytes:
    np = numpy()
    numbers: NDArray[float32] = np.frombuffer(data, "<f4")
    with np.errstate(all="ignore"):
        bits = numbers.astype("<f2").view("<u2")
    wide = np.frombuffer(data, "<u4")
    nan = (wide & 0x7FFFFFFF) > 0x7F800000
    bits[nan] = (wide[nan] >> 16 & 0x8000) | 0x7E00 | (wide[nan] >> 13 & 0x3FF)
    _held(np, numbers, (bits & 0x7FFF) == 0x7C00, "F16")
    return bytes(bits.tobytes())


def _brain(data: bytes) -> bytes:
    np = numpy()
    bits = np.frombuffer(data, "<u4")
    narrow = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    narrow[(bits & 0x7FFFFFFF) > 0x7F800000] = 0x7FC0
    _held(np, bits.view("<f4"), (narrow & 0x7FFF) == 0x7F80, "BF16")
    return bytes(narrow.tobytes())


def _held(np: Any, numbers: NDArray[float32], infinite: NDArray[bool_], target: str) -> None:
    lost = numbers[infinite]
    lost = lost[np.isfinite(lost)]
    if lost.size:
        hint = "BF16 has the range of F32" if target == "F16" else "leave it in F32"
        raise ConvertError(
            f"{target} cannot hold {lost[np.abs(lost).argmax()]:g}: it would become infinite, as it does in torch", hint=hint
        )
