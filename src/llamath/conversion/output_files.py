"""The files that a conversion writes; their sizes are known before the first byte is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..checkpoint.tensor_reader import TensorReader
from .tensor_plan import OutputTensor, read_chunks


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None:
        """Append bytes."""

    def patch(self, at: int, data: bytes) -> None:
        """Overwrite bytes that have been written."""


class OutputFile(Protocol):
    """A file to write."""

    name: str
    size: int

    def write(self, sink: Sink, reader: TensorReader) -> None:
        """Write the file."""

    def identity(self) -> bytes:
        """Return bytes that differ for files with different contents, without reading the tensors."""


class ConcatFile:
    """A file made of bytes and tensors, one after another."""

    def __init__(self, name: str, parts: Sequence[bytes | OutputTensor]) -> None:
        self.name, self.parts = name, tuple(parts)
        self.size = sum(len(x) if isinstance(x, bytes) else x.bytes for x in parts)

    def write(self, sink: Sink, reader: TensorReader) -> None:
        """Write the parts in chunks."""
        for part in self.parts:
            for data in (part,) if isinstance(part, bytes) else read_chunks(part, reader):
                sink.write(data)

    def identity(self) -> bytes:
        """Return the bytes, and the source of each tensor."""
        return b"".join(x if isinstance(x, bytes) else tensor_identity(x) for x in self.parts)


def tensor_identity(tensor: OutputTensor) -> bytes:
    """Return bytes that identify the source of a tensor and its changes."""
    sources = ((x.source, x.first, x.last, x.rotary_rows) for x in tensor.sources)
    return repr([tensor.name, tensor.dtype, tensor.shape, tensor.shares_data_with, *sources]).encode()
