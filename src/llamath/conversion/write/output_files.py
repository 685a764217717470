"""The files that a conversion writes; their sizes are known before the first byte is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ...checkpoint.tensor_reader import TensorReader


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Append bytes."""

    def patch(self, at: int, data: bytes) -> None:
        """Overwrite bytes that have been written."""


class TensorToWrite(Protocol):
    """A tensor of the new checkpoint."""

    @property
    def name(self) -> str:
        """Its name in the file."""

    @property
    def dtype(self) -> str:
        """The canonical name of its dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, outermost dimension first."""

    @property
    def size(self) -> int:
        """The size of the data."""

    def chunks(self, reader: TensorReader) -> Iterator[bytes]:
        """Yield the data in chunks."""

    def identity(self) -> bytes:
        """Return bytes that identify the source of the data and its changes."""


class OutputFile(Protocol):
    """A file to write."""

    name: str
    size: int

    def write(self, sink: Sink, reader: TensorReader) -> None:
        """Write the file."""

    def identity(self) -> bytes:
        """Return bytes that differ for files with different contents, without reading the
        tensors.
        """


class ConcatFile:
    """A file made of bytes and tensors, one after another."""

    def __init__(self, name: str, parts: Sequence[bytes | TensorToWrite]) -> None:
        self.name, self.parts = name, tuple(parts)
        self.size = sum(len(x) if isinstance(x, bytes) else x.size for x in parts)

    def write(self, sink: Sink, reader: TensorReader) -> None:
        """Write the parts in chunks."""
        for part in self.parts:
            for data in (part,) if isinstance(part, bytes) else part.chunks(reader):
                sink.write(data)

    def identity(self) -> bytes:
        """Return the bytes, and the source of each tensor."""
        return b"".join(x if isinstance(x, bytes) else x.identity() for x in self.parts)
