"""What a conversion writes: files whose size is known before their first byte is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..checkpoint.tensor_reader import TensorReader
from .tensor_plan import OutputTensor, read_chunks


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Add these bytes."""

    def patch(self, at: int, data: bytes) -> None:
        """Write over bytes that are there already."""


class OutputFile(Protocol):
    """A file to be."""

    name: str
    size: int

    def write(self, sink: Sink, files: TensorReader) -> None:
        """Write all of it."""

    def identity(self) -> bytes:
        """What tells it from any other file of its name and size, without its numbers."""


class ConcatFile:
    """A file that is bytes and tensors, one after another."""

    def __init__(self, name: str, pieces: Sequence[bytes | OutputTensor]) -> None:
        self.name, self.parts = name, tuple(pieces)
        self.size = sum(len(x) if isinstance(x, bytes) else x.bytes for x in pieces)

    def write(self, sink: Sink, files: TensorReader) -> None:
        """Piece by piece, chunk by chunk."""
        for piece in self.parts:
            for data in (piece,) if isinstance(piece, bytes) else read_chunks(piece, files):
                sink.write(data)

    def identity(self) -> bytes:
        """Its own bytes, and how each tensor comes about."""
        return b"".join(x if isinstance(x, bytes) else tensor_identity(x) for x in self.parts)


def tensor_identity(entry: OutputTensor) -> bytes:
    """How a tensor comes about, as text."""
    return repr(
        [entry.name, entry.dtype, entry.shape, entry.shares_data_with, *((x.source, x.first, x.last, x.rotary_rows) for x in entry.sources)]
    ).encode()
