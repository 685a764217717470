"""`StoredMatrix`: the stored tensors of one packed matrix, and the unpacking of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....utils.errors import LlamathError, safe
from ...formats.number_arrays import require_numpy, to_float32
from ..packed_tensors import PackedWeight, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Arrays = Mapping[str, tuple[str, Array]]

Rows = Callable[[int, int], Any]
"""The values of the outputs from one to another, and not including the other: float32 [n, in]."""
INTERLEAVED = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column, of eight, that each half byte of a word holds in AWQ's GEMM layout, and in
Quark's."""


class StoredMatrix:
    """The stored tensors of one matrix, by the last part of their names, as arrays."""

    def __init__(self, x: PackedWeight, arrays: Arrays, config: Mapping[str, Any]) -> None:
        self.weight, self.config, self.arrays = x, config, arrays
        self.out, self.into = x.shape[-2:] if x.shape is not None and len(x.shape) > 1 else (0, 0)

    def find(self, *ends: str) -> str:
        """Return the first of these ends that a stored tensor has, or an empty string."""
        return next((end for end in ends if end in self.arrays), "")

    def raw(self, *ends: str) -> Any:
        """Return the stored numbers of the tensor with one of these ends."""
        end = self.find(*ends)
        if not end:
            raise self.error(f"expected a tensor {ends[0]}, found {', '.join(sorted(self.arrays))}")
        return self.arrays[end][1]

    def floats(self, *ends: str) -> Any:
        """Return the tensor with one of these ends as float32; bytes of scales are exponents."""
        raw, end = self.raw(*ends), self.find(*ends)
        dtype = self.arrays[end][0]
        return to_float32(raw, "F8_E8M0" if dtype == "U8" else dtype)

    def dtype(self, end: str) -> str:
        """Return the stored dtype of the tensor with this end."""
        return self.arrays[end][0]

    def number(self, end: str) -> int:
        """Return the first number of the tensor with this end."""
        return int(self.raw(end).reshape(-1)[0])

    def error(self, problem: str) -> LlamathError:
        """Return an error about this weight."""
        return LlamathError(f"{safe(self.weight.name)} ({safe(self.weight.kind, 40)}): {problem}")

    def check(self, what: str, found: Sequence[int], *expected: Sequence[int]) -> None:
        """Raise unless a shape is one of those expected."""
        if tuple(found) not in {tuple(x) for x in expected}:
            wanted = " or ".join(str(list(x)) for x in expected)
            raise self.error(f"expected {what} of shape {wanted}, found {list(found)}")


def stored_shape(x: PackedWeight, arrays: Arrays) -> Shape:
    """Return the shape that is stored next to a matrix; it cannot have more values than there
    are stored, or bits in a bitmask.
    """
    shape = tuple(map(int, arrays["shape"][1].reshape(-1))) if "shape" in arrays else ()
    most = 8 * arrays["bitmask"][1].size if "bitmask" in arrays else 10 * arrays["values"][1].size
    if len(shape) != 2 or not all(0 < n < 1 << 40 for n in shape) or shape[0] * shape[1] > most:
        raise LlamathError(
            f"{safe(x.name)}: expected a shape of two integers that fits its "
            f"values, found {list(shape)}"
        )
    return shape


def unpack(words: Array, bits: int, count: int) -> Any:
    """Return the first `count` values of `bits` bits of each row of words, lowest bits first."""
    np = require_numpy()
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape[:-1], -1)
    if bits == 8:
        values = octets
    elif 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        values = ((octets[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*octets.shape[:-1], -1)
    else:
        all_bits = np.unpackbits(octets, axis=-1, bitorder="little")
        whole = all_bits.shape[-1] // bits
        shape = (*octets.shape[:-1], whole, bits)
        pieces = all_bits[..., : whole * bits].reshape(shape)
        values = np.packbits(pieces, axis=-1, bitorder="little")[..., 0]
    return values[..., :count]


def unpack_words(words: Array, is_interleaved: bool = True) -> Any:
    """Return the eight half bytes of each word, in AWQ's order or from the lowest up."""
    np = require_numpy()
    found = unpack(words, 4, 8 * words.shape[-1]).reshape(*words.shape, 8)
    ordered = np.empty_like(found)
    ordered[..., INTERLEAVED if is_interleaved else slice(None)] = found
    return ordered.reshape(*words.shape[:-1], -1)


def per_value(factors: Array, n: int, group: int = 0) -> Any:
    """Repeat the factors of groups along the last axis, for n values."""
    np = require_numpy()
    groups = factors.shape[-1]
    if groups in (1, n):
        return factors
    return np.repeat(factors, group or -(-n // groups), -1)[..., :n]


def group_rows(
    unpacked: Callable[[Any], Any], words: Array, zero: Array, scale: Array, into: int
) -> Rows:
    """Return the rows of a matrix of words with inputs first, each of eight outputs; zeros and
    scales are those of groups of inputs.
    """
    np = require_numpy()
    group = np.arange(into) // -(-into // len(scale))

    def rows(first: int, last: int) -> Any:
        q, z = (
            unpacked(x[:, first // 8 : -(-last // 8)]).astype(np.float32)[:, : last - first]
            for x in (words, zero)
        )
        return np.ascontiguousarray(((q - z[group]) * scale[group, first:last]).T)

    return rows
