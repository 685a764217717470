"""`TensorReader`: read rows of a checkpoint's tensors, also of tensors that are sharded over
several files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import NamedTuple

from ..utils.errors import ConvertError, FormatError, safe
from .formats.dtypes import DTYPES, PLAIN
from .formats.manifest import Manifest, Tensor
from .formats.source import LocalFile, Source

CHUNK_BYTES = 1 << 20
"""Bytes to read at once."""


class MergedTensor(NamedTuple):
    """A tensor and the stored parts that it consists of, read as rows of its last dimension;
    each element of a vector is a row.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Tensor, ...]
    axis: int = 0  # along which the parts are concatenated: 0 rows, 1 columns

    @property
    def width(self) -> int:
        """Elements in a row."""
        return _row_width(self.shape)


def overlapping_tensors(manifest: Manifest) -> list[str]:
    """Return the names of torch tensors whose own elements share stored elements, as with a
    stride of 0.
    """
    return [
        x.name
        for x in manifest.tensors
        if x.strides is not None and x.elements * PLAIN[x.dtype].bytes > x.bytes
    ]


def check_expansion(manifest: Manifest) -> None:
    """Refuse a checkpoint whose tensors cannot be read in place, or have more bytes than twice its
    files.

    A torch file of a few KB can declare tensors of any size with a stride of 0, or give one storage
    many names. Twice: the embedding and the head may be one matrix, which has two names.
    """
    if manifest.format == "npz" and any(manifest.columns.storage):
        message = (
            f"{safe(manifest.files[0].name)}: expected arrays that are stored plainly, "
            "found deflated ones"
        )
        raise FormatError(
            "compressed", message, hint="save them with numpy.savez instead of savez_compressed"
        )
    if manifest.format not in ("torch", "npz"):
        return
    declared, size = (
        sum(x.elements * PLAIN[x.dtype].bytes for x in manifest.tensors),
        sum(x.size for x in manifest.files),
    )
    if declared > 2 * size:
        names = overlapping_tensors(manifest) or [x.name for x in manifest.tensors]
        raise FormatError(
            "expansion",
            f"{safe(manifest.files[0].name)}: expected a checkpoint that stores each element "
            f"once, found {declared:,} bytes of tensors in "
            f"{size:,} bytes of files ({safe(names[0])} and others)",
            hint="if the file is trusted, load it with torch and save .clone() of each tensor",
        )


class TensorReader:
    """Reads the tensors of a checkpoint; each file is opened when it is first needed."""

    def __init__(self, manifest: Manifest) -> None:
        check_expansion(manifest)
        self._files = manifest.files
        self._open: dict[int, Source] = {}

    def source(self, file: int) -> Source:
        """Return a file, which must have the size that it had when its header was read."""
        if file not in self._open:
            self._open[file] = source = LocalFile(self._files[file].name)
            if source.size != self._files[file].size:
                raise ConvertError(f"{safe(source.name)} has changed since its header was read")
        return self._open[file]

    def file_name_of(self, tensor: MergedTensor) -> str:
        """Return the base name of the file with the first part of a tensor."""
        return safe(os.path.basename(self._files[tensor.parts[0].file].name))

    def read_rows(self, tensor: MergedTensor, first: int, last: int) -> bytes:
        """Read the rows from `first` up to, and not including, `last`."""
        if tensor.axis:
            return b"".join(
                _interleave_rows(
                    [self._read_part(x, first, last) for x in tensor.parts], last - first
                )
            )
        pieces, rows_before = [], 0
        for x in tensor.parts:
            rows = prod(x.shape) // _row_width(x.shape)
            if rows_before < last and first < rows_before + rows:
                pieces.append(
                    self._read_part(x, max(first - rows_before, 0), min(last - rows_before, rows))
                )
            rows_before += rows
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_bytes(self, x: Tensor, start: int, length: int) -> bytes:
        """Read bytes of a contiguous stored tensor, from the start of its data."""
        return self._read(x, x.start + start, length)

    def _read_part(self, x: Tensor, first: int, last: int) -> bytes:
        if x.strides is not None:
            return b"".join(self._read_strided(x, first, last))
        size = DTYPES[x.dtype].size(_row_width(x.shape))
        return self._read(x, x.start + first * size, (last - first) * size)

    def _read(self, x: Tensor, start: int, length: int) -> bytes:
        try:
            return self.source(x.file).read(start, length)
        except OSError as error:
            raise ConvertError(
                f"{safe(self._files[x.file].name)} cannot be read: {error.strerror}"
            ) from None

    def _read_strided(self, x: Tensor, first: int, last: int) -> Iterator[bytes]:
        """Yield the rows of a torch tensor that is not contiguous."""
        row_stride, column_stride = (*x.strides, 1)[:2] if x.strides else (1, 1)
        size, width = PLAIN[x.dtype].bytes, _row_width(x.shape)
        start, span = (
            first * row_stride,
            (last - first - 1) * row_stride + (width - 1) * column_stride + 1,
        )
        data = memoryview(self._read(x, x.start + start * size, span * size)).cast(
            "I" if size == 4 else "H"
        )
        for row in range(last - first):
            at = row * row_stride
            if column_stride:
                yield data[at : at + (width - 1) * column_stride + 1 : column_stride].tobytes()
            else:
                yield data[at : at + 1].tobytes() * width

    def close(self) -> None:
        """Close all files."""
        for source in self._open.values():
            source.close()
        self._open.clear()


def have_equal_values(a: MergedTensor, b: MergedTensor, files: TensorReader) -> bool:
    """Whether two tensors are equal bit by bit, those of two plain dtypes as float32; reading
    ends at the first difference.
    """
    if a.shape != b.shape or (a.dtype != b.dtype and not {a.dtype, b.dtype} <= _AS_FLOAT32.keys()):
        return False
    if not prod(a.shape):
        return True
    rows = prod(a.shape) // a.width
    step = max(1, CHUNK_BYTES // max(DTYPES[x.dtype].size(x.width) for x in (a, b)))
    spans = ((first, min(rows, first + step)) for first in range(0, rows, step))
    if a.dtype == b.dtype:
        return all(files.read_rows(a, *span) == files.read_rows(b, *span) for span in spans)
    widen_a, widen_b = _AS_FLOAT32[a.dtype], _AS_FLOAT32[b.dtype]
    return all(
        widen_a(files.read_rows(a, *span)) == widen_b(files.read_rows(b, *span)) for span in spans
    )


def _widen_bfloat16(data: bytes) -> bytes:
    widened = bytearray(2 * len(data))
    widened[2::4], widened[3::4] = data[::2], data[1::2]
    return bytes(widened)


def _widen_float16(data: bytes) -> bytes:
    n = len(data) // 2
    return struct.pack(f"<{n}f", *struct.unpack(f"<{n}e", data))


_AS_FLOAT32: Mapping[str, Callable[[bytes], bytes]] = {
    "F32": bytes,
    "BF16": _widen_bfloat16,
    "F16": _widen_float16,
}
"""Little-endian values of a dtype as those of float32, exactly."""


def _row_width(shape: tuple[int, ...]) -> int:
    return shape[-1] if len(shape) > 1 else 1


def _interleave_rows(parts: list[bytes], rows: int) -> Iterator[bytes]:
    """Yield each row from every part in turn."""
    views = [(memoryview(x), len(x) // rows) for x in parts]
    return (view[row * size : (row + 1) * size] for row in range(rows) for view, size in views)  # type: ignore[misc]
