"""`Manifest`: what a checkpoint contains, before anybody believes it: names, types, shapes and byte spans."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from ..record import Record


class Tensor(NamedTuple):
    """One tensor as its file declares it."""

    name: str
    dtype: str  # safetensors' names for plain types, ggml's for its block types
    shape: tuple[int, ...]  # outermost dimension first, in every format
    file: int  # which of the manifest's files
    start: int  # first byte, counted from the start of the file (torch: of the storage's bytes inside the archive)
    end: int  # one past the last
    strides: tuple[int, ...] | None = None  # torch only, in elements; None: contiguous
    storage: str = ""  # torch only: tensors that name the same storage of the same file share it

    @property
    def elements(self) -> int:
        """How many numbers its shape promises."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes it spans."""
        return self.end - self.start


class File(NamedTuple):
    """One file of a checkpoint."""

    name: str
    size: int
    header: int = 0  # bytes that are not tensors: header, padding, archive records


class Manifest(Record):
    """The tensors of one file, or of all the shards of a checkpoint."""

    format: str  # safetensors, gguf or torch
    files: tuple[File, ...]
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, Any] = {}  # strings of strangers: inert, escaped before they are shown
    index: Mapping[str, Any] | None = None  # what the index file says, if there is one
