"""Casts between F32, F16 and BF16 as torch does: widening is exact, narrowing rounds to the
nearest, ties to even.

A finite number that would become infinite is an error. NaN stays NaN: between F16 and F32 its
payload is kept and it becomes quiet; to BF16 its bits are kept if they fit, otherwise it is 0x7FC0
as in torch's scalar code (its vectorized code writes 0xFFFF).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..checkpoint.formats.number_arrays import require_numpy
from ..utils.errors import ConvertError, MissingExtra

if TYPE_CHECKING:
    from numpy import bool_, uint32
    from numpy.typing import NDArray

FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
INTEGERS = ("I64",)
"""Dtypes of tables of numbers, which are copied as stored."""
"""The supported dtypes and their sizes in bytes."""
_BLOCK_BYTES = 1 << 16
"""Bytes to cast at once, so that they stay in the processor's cache."""
_NUMPY_MIN_BYTES = 1 << 15
"""Fewer bytes are cast without numpy, whose import takes longer."""


def cast_blocks(data: bytes, source: str, target: str) -> Iterator[bytes]:
    """Yield the numbers in another dtype, block by block."""
    if source == target:
        yield data
    else:
        yield from (
            cast_floats(data[at : at + _BLOCK_BYTES], source, target)
            for at in range(0, len(data), _BLOCK_BYTES)
        )


def cast_floats(data: bytes, source: str, target: str) -> bytes:
    """Return the numbers in another dtype; an error names a number that the dtype cannot
    represent.
    """
    if source == target:
        return data
    if source == "BF16":
        return cast_floats(_bf16_to_f32(data), "F32", target)
    if source == "F16":
        return cast_floats(_f16_to_f32(data), "F32", target)
    if target == "BF16" and is_exact(data, target):
        narrow = bytearray(len(data) // 2)
        narrow[::2], narrow[1::2] = data[2::4], data[3::4]
        return bytes(narrow)
    return _f32_to_f16(data) if target == "F16" else _f32_to_bf16(data)


def is_exact(data: bytes, target: str) -> bool:
    """Whether casting these F32 numbers to a narrower dtype changes none."""
    if target == "BF16":
        count = len(data) // 4
        return data[::4].count(0) == count and data[1::4].count(0) == count
    try:
        return target == "F32" or _f16_to_f32(_f32_to_f16(data)) == data
    except ConvertError:
        return False


def _bf16_to_f32(data: bytes) -> bytes:
    """Widen: BF16 is the upper half of F32."""
    if len(data) > _NUMPY_MIN_BYTES:
        with suppress(MissingExtra):
            return bytes((require_numpy().frombuffer(data, "<u2").astype("<u4") << 16).tobytes())
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return bytes(wide)


def _f16_to_f32(data: bytes) -> bytes:
    bits = require_numpy().frombuffer(data, "<f2").astype("<f4").view("<u4")
    bits[(bits & 0x7FFFFFFF) > 0x7F800000] |= 0x400000
    return bytes(bits.tobytes())


def _f32_to_f16(data: bytes) -> bytes:
    """Narrow with integer arithmetic: numpy's own cast takes twenty times as long for subnormal
    results.
    """
    np = require_numpy()
    bits = np.frombuffer(data, "<u4")
    size = bits & 0x7FFFFFFF
    half = (size - 0x37FFF001 + (size >> 13 & 1)) >> 13
    small, nan = size < 0x38800000, size > 0x7F800000
    half[small] = (size[small].view("<f4") + np.float32(0.5)).view("<u4") - 0x3F000000
    half[size >= 0x47800000] = 0x7C00
    half[nan] = 0x7E00 | size[nan] >> 13 & 0x3FF
    _check_overflow(np, bits, half == 0x7C00, "F16")
    return bytes((half | bits >> 16 & 0x8000).astype("<u2").tobytes())


def _f32_to_bf16(data: bytes) -> bytes:
    np = require_numpy()
    bits = np.frombuffer(data, "<u4")
    narrow = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    narrow[(bits & 0x7FFFFFFF) > 0x7F800000] = 0x7FC0
    _check_overflow(np, bits, (narrow & 0x7FFF) == 0x7F80, "BF16")
    return bytes(narrow.tobytes())


def _check_overflow(np: Any, bits: NDArray[uint32], infinite: NDArray[bool_], target: str) -> None:
    lost = bits[infinite].view("<f4")
    lost = lost[np.isfinite(lost)]
    if lost.size:
        hint = "BF16 has the range of F32" if target == "F16" else "keep F32"
        raise ConvertError(
            f"{target} cannot represent {lost[np.abs(lost).argmax()]:g}: it would become infinite",
            hint=hint,
        )
