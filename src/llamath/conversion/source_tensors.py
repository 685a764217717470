"""Tensors of the source of a conversion, read row by row: as they are stored, or dequantized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Protocol

from ..checkpoint.formats.dtypes import DTYPES
from ..checkpoint.formats.manifest import Tensor
from ..checkpoint.formats.number_arrays import StoredArray, require_numpy
from ..checkpoint.quantization.dequantizers import iter_dequantized
from ..checkpoint.quantization.packed_tensors import PackedWeight
from ..checkpoint.tensor_reader import MergedTensor, TensorReader
from ..utils.errors import ConvertError, safe

Shape = tuple[int, ...]


class SourceTensor(Protocol):
    """A tensor of the source."""

    @property
    def name(self) -> str:
        """Its name, or the name that it would have if it were not quantized."""

    @property
    def dtype(self) -> str:
        """The dtype of the rows that `read` returns."""

    @property
    def shape(self) -> Shape:
        """Its shape, or that of the weight if it is quantized."""

    @property
    def is_contiguous(self) -> bool:
        """Whether a few rows can be read without the others."""

    def read(self, reader: TensorReader, first: int, last: int) -> bytes:
        """Return the rows from `first` up to, and not including, `last`."""

    def identity(self) -> str:
        """Return text that identifies the stored bytes."""


def row_width(shape: Shape) -> int:
    """Return the number of elements in a row; each element of a vector is a row."""
    return shape[-1] if len(shape) > 1 else 1


class PlainTensor:
    """A tensor of numbers or of ggml's blocks."""

    def __init__(self, tensor: MergedTensor) -> None:
        self.name, self.dtype, self.shape, self.tensor = (
            tensor.name,
            tensor.dtype,
            tensor.shape,
            tensor,
        )

    @property
    def is_contiguous(self) -> bool:
        """Whether a few rows can be read without the others."""
        return all(x.strides is None for x in self.tensor.parts)

    def read(self, reader: TensorReader, first: int, last: int) -> bytes:
        """Return these rows as they are stored."""
        return reader.read_rows(self.tensor, first, last)

    def identity(self) -> str:
        """Return the stored parts."""
        return repr(self.tensor)


class PackedTensor:
    """A quantized weight; its rows are read in order, and dequantized to F32, or to ggml's MXFP4
    where they are MXFP4.
    """

    is_contiguous = True

    def __init__(
        self,
        weight: PackedWeight,
        shape: Shape,
        parts: Mapping[str, Tensor],
        config: Mapping[str, Any],
    ) -> None:
        self.name, self.shape, self.kind, self.parts = weight.name, shape, weight.kind, parts
        self._weight, self._config = weight._replace(shape=shape), config
        self._rows: _RowStream | None = None
        has_two_parts = set(weight.companions) == set(parts) - {weight.values} and len(parts) == 2
        self.dtype = (
            "MXFP4"
            if weight.kind == "mxfp4" and has_two_parts and shape[-1] % DTYPES["MXFP4"].block == 0
            else "F32"
        )

    @property
    def is_transposed(self) -> bool:
        """Whether the shape is [out, in] also where the model defines the weight as [in, out]."""
        return self._weight.is_outputs_first

    def read(self, reader: TensorReader, first: int, last: int) -> bytes:
        """Return these rows."""
        return (
            self._read_mxfp4(reader, first, last)
            if self.dtype == "MXFP4"
            else b"".join(self._read_matrices(reader, first, last))
        )

    def _read_matrices(self, reader: TensorReader, first: int, last: int) -> Iterator[bytes]:
        """Yield these rows of a stack of matrices."""
        rows = self.shape[-2]
        for matrix in range(first // rows, -(-last // rows)):
            start, stop = max(first - matrix * rows, 0), min(last - matrix * rows, rows)
            if self._rows is None or self._rows.matrix != matrix or self._rows.at > start:
                self._rows = _RowStream(matrix, self._open(reader, matrix))
            yield self._rows.read(start, stop)
            if stop == rows:
                self._rows = None

    def _open(self, reader: TensorReader, matrix: int) -> Iterator[Any]:
        """Return the rows of one matrix, some at a time."""
        outer = self.shape[:-2]

        def read(name: str) -> StoredArray:
            x = self.parts[name]
            if x.strides is not None:
                raise ConvertError(
                    f"{safe(name)} is packed and not contiguous", hint="save it with .contiguous()"
                )
            if not outer or x.shape[: len(outer)] != outer:
                return StoredArray(x.dtype, x.shape, reader.read_bytes(x, 0, x.bytes))
            size = x.bytes // prod(outer)
            return StoredArray(
                x.dtype, x.shape[len(outer) :], reader.read_bytes(x, matrix * size, size)
            )

        return iter_dequantized(self._weight._replace(shape=self.shape[-2:]), read, self._config)[1]

    def _read_mxfp4(self, reader: TensorReader, first: int, last: int) -> bytes:
        """Return rows as ggml's blocks, which hold the same numbers in another order."""
        np = require_numpy()
        values, exponents = self.parts[self._weight.values], self.parts[self._weight.companions[0]]
        sizes = [x.bytes // prod(self.shape[:-1]) for x in (values, exponents)]
        octets, scale = (
            np.frombuffer(reader.read_bytes(x, first * size, (last - first) * size), np.uint8)
            for x, size in zip((values, exponents), sizes, strict=True)
        )
        halves = np.stack((octets & 15, octets >> 4), -1).reshape(-1, 2, 16)
        return bytes(
            np.concatenate((scale.reshape(-1, 1), halves[:, 0] | halves[:, 1] << 4), 1).tobytes()
        )

    def identity(self) -> str:
        """Return the stored parts."""
        return repr((self._weight, tuple(self.parts.values()), self._config))


class _RowStream:
    """The rows of one matrix, which are dequantized some at a time."""

    def __init__(self, matrix: int, pieces: Iterator[Any]) -> None:
        self.matrix, self.at, self._pieces = matrix, 0, pieces
        self._piece: Any = ()

    def read(self, first: int, last: int) -> bytes:
        """Return these rows; earlier ones are skipped."""
        found = []
        while self.at < last:
            if not len(self._piece):
                self._piece = next(self._pieces)
            skipped = min(max(first - self.at, 0), len(self._piece))
            taken = 0 if self.at + skipped < first else min(last - self.at, len(self._piece))
            if taken:
                found.append(self._piece[skipped:taken].astype("<f4", copy=False).tobytes())
            used = max(taken, skipped)
            self.at, self._piece = self.at + used, self._piece[used:]
        return b"".join(found)
