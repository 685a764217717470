"""`EditedTensor`: a stored tensor to write that is made of slices of others along one axis;
their bytes are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, Literal, NamedTuple

from ...checkpoint.formats.dtypes import PLAIN
from ...checkpoint.formats.manifest import Tensor
from ...checkpoint.formats.number_arrays import require_numpy
from ...checkpoint.tensor_reader import CHUNK_BYTES, TensorReader
from ...utils.errors import ConvertError, safe
from ..float_cast import FLOAT_BYTES, cast_floats

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of indices, in order."""
Fill = Literal["", "zeros", "mean"]


class Slice(NamedTuple):
    """Indices of a stored tensor along an axis."""

    tensor: Tensor
    ranges: Ranges

    @property
    def length(self) -> int:
        """The number of indices."""
        return sum(b - a for a, b in self.ranges)


class EditedTensor(NamedTuple):
    """Slices, concatenated along one axis, with rows appended to them; without slices, `whole`
    is copied.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    whole: Tensor | None = None
    axis: int = 0
    slices: tuple[Slice, ...] = ()
    appended: int = 0  # rows of zeros, or of the mean of the rows before
    fill: Fill = ""
    data: bytes = b""  # of a tensor that is written anew

    def chunks(self, reader: TensorReader) -> Iterator[bytes]:
        """Yield the bytes in chunks."""
        if self.data:
            yield self.data
            return
        if self.whole is not None:
            yield from _copy(self.whole, 0, self.whole.bytes, reader)
            return
        rows = self._slice_rows(reader) if self._outer == 1 else self._slice_columns(reader)
        if self.fill != "mean":
            yield from rows
            yield from _repeat(bytes(self._row_bytes), self.appended)
            return
        mean = _MeanRow(self.dtype, self._row_bytes)
        for data in rows:
            mean.add(data)
            yield data
        yield from _repeat(mean.row(), self.appended)

    def identity(self) -> bytes:
        """Return bytes that identify the source of the data and its changes."""
        return repr(self).encode()

    @property
    def _outer(self) -> int:
        """The number of parts of each slice: the slices may have another shape than the tensor
        that is written.
        """
        return prod(self.slices[0].tensor.shape[: self.axis]) if self.slices else 1

    @property
    def _row_bytes(self) -> int:
        return self.size // self.shape[0] if self.shape and self.shape[0] else 0

    def _slice_rows(self, reader: TensorReader) -> Iterator[bytes]:
        """Yield slices along the first axis (or one with nothing before it), which are
        contiguous, in whole rows.
        """
        for x in self.slices:
            row = x.tensor.bytes // x.tensor.shape[self.axis]
            for first, last in x.ranges:
                yield from _copy(x.tensor, first * row, (last - first) * row, reader, row)

    def _slice_columns(self, reader: TensorReader) -> Iterator[bytes]:
        """Yield slices along another axis: a block of outer rows is read whole, and the parts of
        each row are joined.
        """
        outer = self._outer
        widths = [x.tensor.bytes // outer for x in self.slices]
        step = max(1, CHUNK_BYTES // max(1, sum(widths)))
        for start in range(0, outer, step):
            count = min(step, outer - start)
            views = [
                memoryview(reader.read_bytes(x.tensor, start * width, count * width))
                for x, width in zip(self.slices, widths, strict=True)
            ]
            parts: list[memoryview] = []
            for row in range(count):
                for x, view, width in zip(self.slices, views, widths, strict=True):
                    inner = width // x.tensor.shape[self.axis]
                    parts += [
                        view[row * width + first * inner : row * width + last * inner]
                        for first, last in x.ranges
                    ]
            yield b"".join(parts)


class _MeanRow:
    """The mean of rows, in float64, rounded once to their dtype."""

    def __init__(self, dtype: str, row_bytes: int) -> None:
        if dtype not in FLOAT_BYTES:
            raise ConvertError(
                f"rows of {dtype} have no mean that can be stored; only "
                f"{', '.join(FLOAT_BYTES)} can be extended"
            )
        self._np = require_numpy()
        self._dtype, self._row_bytes, self._rows = dtype, row_bytes, 0
        self._sum: Any = self._np.zeros(row_bytes // FLOAT_BYTES[dtype], "<f8")

    def add(self, data: bytes) -> None:
        """Add whole rows."""
        rows = len(data) // self._row_bytes
        numbers = self._np.frombuffer(cast_floats(data, self._dtype, "F32"), "<f4")
        self._sum += numbers.reshape(rows, -1).sum(axis=0, dtype="<f8")
        self._rows += rows

    def row(self) -> bytes:
        """Return the mean row."""
        return cast_floats((self._sum / self._rows).astype("<f4").tobytes(), "F32", self._dtype)


def copy_tensor(tensor: Tensor, name: str) -> EditedTensor:
    """Return a copy of a stored tensor under another name."""
    _check_contiguous(tensor)
    return EditedTensor(name, tensor.dtype, tensor.shape, tensor.bytes, whole=tensor)


def new_tensor(like: Tensor, data: bytes) -> EditedTensor:
    """Return a vector with the name and dtype of a stored one, and other numbers."""
    return EditedTensor(
        like.name, like.dtype, (len(data) // PLAIN[like.dtype].bytes,), len(data), data=data
    )


def slice_tensor(
    name: str, axis: int, slices: Iterable[Slice], appended: int = 0, fill: Fill = ""
) -> EditedTensor:
    """Return slices of stored tensors, concatenated along an axis, with rows appended."""
    kept = tuple(x for x in slices if x.ranges)
    first = kept[0].tensor
    for x in kept:
        _check_contiguous(x.tensor)
    length = sum(x.length for x in kept) + appended
    inner = first.bytes // prod(first.shape[: axis + 1])
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    whole = prod(first.shape[: axis + 1]) * inner == first.bytes
    if not whole or (appended and axis):
        raise ConvertError(
            f"{safe(first.name)} is {first.dtype} {list(first.shape)}, which "
            f"cannot be cut along axis {axis}"
        )
    return EditedTensor(
        name,
        first.dtype,
        shape,
        prod(shape[: axis + 1]) * inner,
        None,
        axis,
        kept,
        appended,
        fill if appended else "",
    )


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges with adjacent ones joined and empty ones left out."""
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if first < last:
            if merged and merged[-1][1] == first:
                merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
    return tuple(merged)


def _check_contiguous(x: Tensor) -> None:
    if x.strides is not None:
        raise ConvertError(
            f"{safe(x.name)} is not contiguous",
            hint="convert the checkpoint to safetensors first: llamath convert --names hf",
        )


def _copy(
    tensor: Tensor, start: int, length: int, reader: TensorReader, unit: int = 1
) -> Iterator[bytes]:
    """Yield bytes of a tensor in chunks of whole units."""
    step = max(1, CHUNK_BYTES // max(1, unit)) * unit
    for at in range(start, start + length, step):
        yield reader.read_bytes(tensor, at, min(step, start + length - at))


def _repeat(row: bytes, times: int) -> Iterator[bytes]:
    at_once = max(1, CHUNK_BYTES // max(1, len(row)))
    for start in range(0, times, at_once):
        yield row * min(at_once, times - start)
