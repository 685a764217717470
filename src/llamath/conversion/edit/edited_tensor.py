"""`EditedTensor`: a tensor that is made of slices of others along one axis, whose bytes are copied;
and `EditedFile`, which reads like a file with such tensors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, Literal, NamedTuple

from ...checkpoint.formats.dtypes import PLAIN
from ...checkpoint.formats.manifest import Manifest, Tensor
from ...checkpoint.formats.number_arrays import require_numpy
from ...checkpoint.formats.source import Source
from ...checkpoint.tensor_reader import CHUNK_BYTES, TensorReader
from ...utils.errors import Call, ConvertError, Name, safe
from ..float_cast import FLOAT_BYTES, cast_floats

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of indices, in order."""
Fill = Literal["", "zeros", "mean"]
_NARROW_BYTES = 1 << 16
"""Rows of up to this size are read with what is between them."""


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
        file = EditedFile(self.name, (self,), reader)
        for start in range(0, self.size, CHUNK_BYTES):
            yield file.read(start, min(CHUNK_BYTES, self.size - start))

    @property
    def row_bytes(self) -> int:
        """The size of a row; appended rows have it, too."""
        return self.size // self.shape[0] if self.shape and self.shape[0] else 0

    @property
    def kept_bytes(self) -> int:
        """The size of what is before the appended rows."""
        return self.size - self.appended * self.row_bytes

    def read_kept(self, reader: TensorReader, start: int, stop: int) -> bytes:
        """Read bytes of what is before the appended rows."""
        if self.data:
            return self.data[start:stop]
        if self.whole is not None:
            return reader.read_bytes(self.whole, start, stop - start)
        outer = prod(self.slices[0].tensor.shape[: self.axis])
        width = self.kept_bytes // outer
        if width > _NARROW_BYTES:
            return b"".join(self._read_ranges(reader, start, stop, outer, width))
        first, last = start // width, -(-stop // width)
        data = self._read_rows(reader, first, last, outer)
        return data[start - first * width : stop - first * width]

    def appended_row(self, reader: TensorReader) -> bytes:
        """Return the row that is appended."""
        if self.fill != "mean":
            return bytes(self.row_bytes)
        mean = _MeanRow(self.dtype, self.row_bytes)
        step = max(1, CHUNK_BYTES // self.row_bytes) * self.row_bytes
        for start in range(0, self.kept_bytes, step):
            mean.add(self.read_kept(reader, start, min(start + step, self.kept_bytes)))
        return mean.row()

    def identity(self) -> bytes:
        """Return bytes that identify the source of the data and its changes."""
        return repr(self).encode()

    def _read_ranges(
        self, reader: TensorReader, start: int, stop: int, outer: int, width: int
    ) -> Iterator[bytes]:
        """Yield bytes of the slices, range by range."""
        for row in range(start // width, -(-stop // width)):
            at = row * width
            for x in self.slices:
                stored = x.tensor.bytes // outer
                each = stored // x.tensor.shape[self.axis]
                for a, b in x.ranges:
                    low, high = max(start, at), min(stop, at + (b - a) * each)
                    if low < high:
                        where = row * stored + a * each + low - at
                        yield reader.read_bytes(x.tensor, where, high - low)
                    at += (b - a) * each

    def _read_rows(self, reader: TensorReader, first: int, last: int, outer: int) -> bytes:
        """Read narrow slices: a block of rows is read whole, and the parts of each row are
        joined.
        """
        widths = [x.tensor.bytes // outer for x in self.slices]
        views = [
            memoryview(reader.read_bytes(x.tensor, first * width, (last - first) * width))
            for x, width in zip(self.slices, widths, strict=True)
        ]
        parts: list[memoryview] = []
        for row in range(last - first):
            for x, view, width in zip(self.slices, views, widths, strict=True):
                each = width // x.tensor.shape[self.axis]
                parts += [
                    view[row * width + a * each : row * width + b * each] for a, b in x.ranges
                ]
        return b"".join(parts)


class EditedFile(Source):
    """Edited tensors, one after another, as one file that is made when it is read."""

    def __init__(self, name: str, tensors: Sequence[EditedTensor], reader: TensorReader) -> None:
        self.name, self.tensors, self._reader = name, tensors, reader
        self._ends = list(accumulate(x.size for x in tensors))
        self.size = self._ends[-1] if self._ends else 0
        self._appended_rows: dict[str, bytes] = {}

    def fetch(self, start: int, length: int) -> bytes:
        """Read from the tensors that these bytes are in."""
        parts: list[bytes] = []
        stop = start + length
        i = bisect_right(self._ends, start)
        while start < stop:
            x, begin = self.tensors[i], self._ends[i] - self.tensors[i].size
            end = min(stop, self._ends[i])
            parts += self._read(x, start - begin, end - begin)
            start, i = end, i + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, x: EditedTensor, start: int, stop: int) -> Iterator[bytes]:
        kept = x.kept_bytes
        if start < min(stop, kept):
            yield x.read_kept(self._reader, start, min(stop, kept))
        if stop > kept:
            if x.name not in self._appended_rows:
                self._appended_rows[x.name] = x.appended_row(self._reader)
            row, first = self._appended_rows[x.name], max(start - kept, 0)
            skipped = first % len(row)
            count = stop - kept - first
            yield (row * (-(-(skipped + count) // len(row))))[skipped : skipped + count]

    def close(self) -> None:
        """Close the files that it is made from."""
        self._reader.close()


class EditedReader(TensorReader):
    """Reads edited tensors; their one file is made from others."""

    def __init__(self, manifest: Manifest, file: EditedFile) -> None:
        super().__init__(manifest)
        self._file = file

    def source(self, file: int) -> Source:  # noqa: ARG002
        """Return the file, which is not on the disk."""
        return self._file

    def close(self) -> None:
        """Close the files that it is made from."""
        self._file.close()


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
        call = Call("convert", Name("source"), Name("target"), names="hf")
        raise ConvertError(
            f"{safe(x.name)} is not contiguous",
            hint=f"convert the checkpoint to safetensors first: {call}",
        )
