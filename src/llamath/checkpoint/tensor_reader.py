"""The numbers of a checkpoint's tensors, a few rows at a time: from one file, or from the parts that several files have of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from ..core.errors import ConvertError, safe
from .formats.dtypes import PLAIN
from .formats.manifest import Manifest, Tensor
from .formats.source import LocalFile, Source

CHUNK = 1 << 20
"""How many bytes are on their way at once."""


class Whole(NamedTuple):
    """A tensor as its checkpoint has it, seen as rows of its last dimension; a vector's rows are its numbers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Tensor, ...]
    axis: int = 0  # that the parts are cut along: 0 rows, 1 columns

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return _width(self.shape)


class Files:
    """A checkpoint's files, each opened when it is first read."""

    def __init__(self, manifest: Manifest) -> None:
        self._files = manifest.files
        self._open: dict[int, Source] = {}

    def source(self, file: int) -> Source:
        """One of the files, still of the size that it had when its header was read."""
        if file not in self._open:
            self._open[file] = source = LocalFile(self._files[file].name)
            if source.size != self._files[file].size:
                raise ConvertError(f"{safe(source.name)} has changed while it was read")
        return self._open[file]

    def name(self, whole: Whole) -> str:
        """The file that the first part of a tensor lies in."""
        return safe(os.path.basename(self._files[whole.parts[0].file].name))

    def rows(self, whole: Whole, first: int, last: int) -> bytes:
        """The rows from `first` up to `last`."""
        if whole.axis:
            return b"".join(_woven([self._part(x, first, last) for x in whole.parts], last - first))
        found, above = [], 0
        for x in whole.parts:
            height = prod(x.shape) // _width(x.shape)
            if above < last and first < above + height:
                found.append(self._part(x, max(first - above, 0), min(last - above, height)))
            above += height
        return found[0] if len(found) == 1 else b"".join(found)

    def _part(self, x: Tensor, first: int, last: int) -> bytes:
        size, width = PLAIN[x.dtype].bytes, _width(x.shape)
        if x.strides is not None:
            return b"".join(self._strided(x, first, last))
        return self._read(x, x.start + first * width * size, (last - first) * width * size)

    def _read(self, x: Tensor, start: int, length: int) -> bytes:
        try:
            return self.source(x.file).read(start, length)
        except OSError as error:
            raise ConvertError(f"{safe(self._files[x.file].name)} cannot be read: {error.strerror}") from None

    def _strided(self, x: Tensor, first: int, last: int) -> Iterator[bytes]:
        """Rows of a torch tensor whose numbers do not lie one after another."""
        down, along = (*x.strides, 1)[:2] if x.strides else (1, 1)
        size, width = PLAIN[x.dtype].bytes, _width(x.shape)
        start, span = first * down, (last - first - 1) * down + (width - 1) * along + 1
        data = memoryview(self._read(x, x.start + start * size, span * size)).cast("I" if size == 4 else "H")
        for row in range(last - first):
            at = row * down
            if along:
                yield data[at : at + (width - 1) * along + 1 : along].tobytes()
            else:
                yield data[at : at + 1].tobytes() * width

    def stamps(self) -> Iterator[tuple[str, int, int]]:
        """Each file's path, size and time of change."""
        for file in self._files:
            yield os.path.realpath(file.name), file.size, os.stat(file.name).st_mtime_ns

    def close(self) -> None:
        """Close them all."""
        for source in self._open.values():
            source.close()
        self._open.clear()


def _width(shape: tuple[int, ...]) -> int:
    return shape[-1] if len(shape) > 1 else 1


def _woven(parts: list[bytes], rows: int) -> Iterator[bytes]:
    """Each row of every part in turn."""
    views = [(memoryview(x), len(x) // rows) for x in parts]
    return (view[row * size : (row + 1) * size] for row in range(rows) for view, size in views)  # type: ignore[misc]
