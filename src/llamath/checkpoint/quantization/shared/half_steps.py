"""Half steps: how far from a dequantized value the number lies that was rounded to its code, where
a quantizer chose the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ....utils.record_type import Record
from ...formats.number_arrays import require_numpy
from .stored_matrix import unpack

if TYPE_CHECKING:
    from ..dequantizers import OpenedPacked
    from .stored_matrix import Array, Arrays


class Steps(Protocol):
    """The distances between the values of the codes of a packing."""

    def moved(self, x: OpenedPacked, own: Arrays, step: int) -> Mapping[str, tuple[str, Any]]:
        """Return the tensors of a matrix that differ if all codes are a step away from zero (1),
        or towards it (−1).
        """

    def half_steps(self, x: OpenedPacked, matrix: int, first: int, last: int) -> tuple[Any, Any]:
        """Return half the distance of each value to the next one towards 0, and away from it; a
        whole distance beyond the last value.
        """


class NextCodes(Record):
    """Codes that are numbers, so that the next number is that of another code."""

    next_codes: Callable[[Array, int], Any]
    # relative error of a quantizer that divides by the scale in the dtype of the weights
    error: float = 0.0

    def moved(
        self,
        x: OpenedPacked,  # noqa: ARG002
        own: Arrays,
        step: int,
    ) -> Mapping[str, tuple[str, Any]]:
        """Return the values with the next codes."""
        dtype, codes = own["values"]
        return {"values": (dtype, self.next_codes(codes, step))}

    def half_steps(self, x: OpenedPacked, matrix: int, first: int, last: int) -> tuple[Any, Any]:
        """Return half the distances to the next numbers."""
        np = require_numpy()
        value, less, more = x.neighbors(matrix, first, last)
        inward, outward = np.abs(value - less) / 2, np.abs(more - value) / 2
        ends = ~((outward > 0) & np.isfinite(outward))
        inward, outward = np.where(inward > 0, inward, outward), np.where(ends, 2 * inward, outward)
        if self.error:
            error = np.float32(self.error) * np.abs(value)
            return inward + error, outward + error
        return inward, outward


MOVED_ERRORS = {2: 0.8, 3: 0.45, 4: 0.35, 8: 0.03}
"""Bits → the largest relative error (root mean square) that AWQ and GPTQ cause, which move
values to reduce the error of a layer."""


def constant_codes(words: Array, bits: int, step: int) -> Any:
    """Return words of the same shape whose codes are all 1 (step 1) or 0."""
    np = require_numpy()
    if step < 0:
        return np.zeros_like(words)
    size = words.dtype.itemsize * 8
    ones = np.zeros((words.shape[-1] * size // bits, bits), np.uint8)
    ones[:, 0] = 1
    padded = np.zeros(words.shape[-1] * size, np.uint8)
    padded[: ones.size] = ones.reshape(-1)
    row = np.packbits(padded, bitorder="little").view(words.dtype)
    return np.broadcast_to(row, words.shape)


def _bits_of_rows(x: OpenedPacked) -> int:
    return int(x.values.shape[-1]) * 32 // x.shape[-1]


def _unsigned(_: OpenedPacked, bits: int) -> tuple[int, int]:
    return 0, (1 << bits) - 1


class WholeNumbers(Record):
    """Codes that are whole numbers, with a scale for their group; read once as 0, once as 1."""

    bits: Callable[[OpenedPacked], int] = staticmethod(_bits_of_rows)
    codes: Callable[[OpenedPacked, int], tuple[int, int]] = staticmethod(_unsigned)
    constant: Callable[[Array, int, int], Any] = staticmethod(constant_codes)
    # what the quantizer's arithmetic adds: of the value, that of the highest code, and half a step
    rounding: Callable[[OpenedPacked, Any, Any, Any], Any] | None = None
    is_moved: bool = False  # the quantizer moves values to reduce the error of a layer

    def moved(self, x: OpenedPacked, own: Arrays, step: int) -> Mapping[str, tuple[str, Any]]:
        """Return the values with all codes 0 or 1."""
        dtype, words = own["values"]
        return {"values": (dtype, self.constant(words, self.bits(x), step))}

    def half_steps(self, x: OpenedPacked, matrix: int, first: int, last: int) -> tuple[Any, Any]:
        """Return half a step, a whole one at the lowest and the highest code."""
        np = require_numpy()
        value, less, more = x.neighbors(matrix, first, last)
        step, (low, high) = np.abs(more - less), self.codes(x, self.bits(x))
        code = (value - less) / np.where(step, step, 1)
        is_end = (code < low + 0.5) | (code > high - 0.5)
        half = step * np.where(is_end, np.float32(1), np.float32(0.5))
        if self.rounding is not None:
            half += self.rounding(x, value, high * step, half)
        return half, half


def next_float8(codes: Array, step: int) -> Any:
    """Return the next codes of an 8-bit float; those of 0 and of the largest value stay."""
    np = require_numpy()
    size = codes.view(np.uint8) & 127
    stays = (size == 0) if step < 0 else (size >= 0x7E)
    return np.where(stays, codes, codes + codes.dtype.type(step % 256))


def next_int8(codes: Array, step: int) -> Any:
    """Return the next codes of integers; those of the lowest and the highest stay."""
    np = require_numpy()
    signed = codes.view(np.int8)
    stays = signed == (-128 if step < 0 else 127)
    return np.where(stays, signed, signed + np.int8(step)).astype(np.int8)


def next_fp4(codes: Array, step: int) -> Any:
    """Return the next codes of both halves of each byte."""
    np = require_numpy()
    half = np.arange(16)
    stays = (half & 7) == (0 if step < 0 else 7)
    table = np.where(stays, half, half + step)
    octets = np.arange(256)
    both = (table[octets & 15] | table[octets >> 4] << 4).astype(np.uint8)
    return both[np.ascontiguousarray(codes).view(np.uint8)]


def next_fp6(codes: Array, step: int) -> Any:
    """Return the next codes of the four numbers in each three bytes."""
    np = require_numpy()
    found = unpack(codes, 6, codes.shape[-1] // 3 * 4).astype(np.int8)
    stays = (found & 31) == (0 if step < 0 else 31)
    moved = np.where(stays, found, found + step).astype(np.uint8)
    bits = np.unpackbits(moved[..., None], axis=-1, bitorder="little")[..., :6]
    return np.packbits(bits.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")
