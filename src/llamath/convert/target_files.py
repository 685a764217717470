"""What a conversion writes: files whose size is known before their first byte is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..checkpoint.tensor_reader import TensorReader
from .tensor_plan import Entry, chunks


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Add these bytes."""

    def patch(self, at: int, data: bytes) -> None:
        """Write over bytes that are there already."""


class Target(Protocol):
    """A file to be."""

    name: str
    size: int

    def write(self, sink: Sink, files: TensorReader) -> None:
        """Write all of it."""

    def facts(self) -> bytes:
        """What tells it from any other file of its name and size, without its numbers."""


class Laid:
    """A file that is bytes and tensors, one after another."""

    def __init__(self, name: str, pieces: Sequence[bytes | Entry]) -> None:
        self.name, self.pieces = name, tuple(pieces)
        self.size = sum(len(x) if isinstance(x, bytes) else x.bytes for x in pieces)

    def write(self, sink: Sink, files: TensorReader) -> None:
        """Piece by piece, chunk by chunk."""
        for piece in self.pieces:
            for data in (piece,) if isinstance(piece, bytes) else chunks(piece, files):
                sink.write(data)

    def facts(self) -> bytes:
        """Its own bytes, and how each tensor comes about."""
        return b"".join(x if isinstance(x, bytes) else made_of(x) for x in self.pieces)


def made_of(entry: Entry) -> bytes:
    """How a tensor comes about, as text."""
    return repr([entry.name, entry.dtype, entry.shape, entry.shares, *((x.source, x.first, x.last, x.turn) for x in entry.copies)]).encode()
