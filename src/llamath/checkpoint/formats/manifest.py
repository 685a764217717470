"""`Manifest`: the tensors that a checkpoint's headers declare, with names, dtypes, shapes and
byte ranges; nothing is trusted yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, overload

from ...utils.record_type import Record


class Tensor(NamedTuple):
    """A tensor as its file declares it."""

    name: str
    dtype: str  # safetensors' name of a plain type, or ggml's name of a block type
    shape: tuple[int, ...]  # outermost dimension first, in every format
    file: int  # index into the manifest's files
    start: int  # first byte, from the start of the file (torch: of the storage in the archive)
    end: int  # one past the last
    strides: tuple[int, ...] | None = None  # torch only, in elements; None: contiguous
    storage: str = ""  # torch only: tensors that name the same storage of the same file share it

    @property
    def elements(self) -> int:
        """The number of elements of its shape."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """The number of bytes it spans."""
        return self.end - self.start


class CheckpointFile(NamedTuple):
    """A file of a checkpoint."""

    name: str
    size: int
    header_bytes: int = 0  # bytes that are not tensors: header, padding, archive records


class TensorColumns(NamedTuple):
    """The fields of many tensors, one column each."""

    name: Sequence[str]
    dtype: Sequence[str]
    shape: Sequence[tuple[int, ...]]
    file: Sequence[int]
    start: Sequence[int]
    end: Sequence[int]
    strides: Sequence[tuple[int, ...] | None]
    storage: Sequence[str]


class TensorTable(Sequence[Tensor]):
    """Tensors stored as columns; `Tensor` objects are created on access, as a checkpoint may
    have 45,000.
    """

    def __init__(self, columns: TensorColumns) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns.name)

    def __iter__(self) -> Iterator[Tensor]:
        return map(Tensor._make, zip(*self.columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, index: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(index, slice):
            return tuple(map(Tensor._make, zip(*(x[index] for x in self.columns), strict=True)))
        return Tensor._make(x[index] for x in self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, TensorTable)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class TensorsByName(Mapping[str, Tensor]):
    """The tensors of a manifest by name; of those that share a name, the last."""

    def __init__(self, manifest: Manifest) -> None:
        self._tensors, self.positions = (
            manifest.tensors,
            dict(zip(manifest.columns.name, range(len(manifest.tensors)), strict=True)),
        )

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self.positions[name]]

    def __contains__(self, name: object) -> bool:
        return name in self.positions

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)


class ShardIndex(Record):
    """An index file (`model.safetensors.index.json`), and the names of its shards that could not
    be read.
    """

    path: str
    weight_map: Mapping[str, str]  # tensor → file name
    metadata: Any = None
    missing: tuple[str, ...] = ()  # names of files that do not exist
    # names of files without a readable header: LFS pointers, HTML pages, …
    unreadable: tuple[str, ...] = ()


class Manifest(Record):
    """The tensors of one file, or of all shards of a checkpoint."""

    format: str  # safetensors, gguf or torch
    files: tuple[CheckpointFile, ...]
    tensors: Sequence[Tensor]
    metadata: Mapping[str, Any] = {}  # untrusted strings: escape them before display
    index: ShardIndex | None = None
    missing: tuple[str, ...] = ()  # files of the same set that are not there, if there is no index
    missing_index: str = ""  # the index that loaders need to find its shards
    notes: tuple[str, ...] = ()  # on how its files were chosen

    @property
    def absent_files(self) -> tuple[str, ...]:
        """The names of its files that do not exist or could not be read."""
        return (*self.index.missing, *self.index.unreadable) if self.index else self.missing

    @property
    def missing_files(self) -> tuple[str, ...]:
        """The names of its files that do not exist."""
        return self.index.missing if self.index else self.missing

    @property
    def folder(self) -> str:
        """The path or address of the folder with its files."""
        first = self.index.path if self.index else self.files[0].name if self.files else ""
        return first.rpartition("/")[0]

    @cached_property
    def num_distinct_names(self) -> int:
        """The number of distinct tensor names."""
        return len(set(self.columns.name))

    @cached_property
    def columns(self) -> TensorColumns:
        """The tensors by column."""
        if isinstance(self.tensors, TensorTable):
            return self.tensors.columns
        return (
            TensorColumns(*map(list, zip(*self.tensors, strict=True)))
            if self.tensors
            else TensorColumns(*([] for _ in TensorColumns._fields))
        )
