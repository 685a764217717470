"""`find_tied_copies`: stored copies of matrices that a config ties to others, and whether their
values are the same.

transformers ties two matrices only if a checkpoint stores one of them, or both with equal values: a
head that differs from the embedding is used although the config says that they are tied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ...utils.errors import LlamathError
from ..formats.dtypes import PLAIN_FLOATS
from ..formats.manifest import Manifest, Tensor
from ..meta_shards import merge_tensor
from ..open import OpenedCheckpoint
from ..tensor_reader import MergedTensor, TensorReader, have_equal_values
from .scheme import TiedNames


class TiedCopy(NamedTuple):
    """A matrix that is stored although the config ties it to another."""

    name: str
    original: str
    differs: bool | None  # None: not compared
    reason: str = ""  # why it was not compared, or how it differs
    is_remote: bool = False


def find_tied_copies(opened: OpenedCheckpoint, tied: Iterable[TiedNames]) -> tuple[TiedCopy, ...]:
    """Return the matrices that a checkpoint stores beside those that they are tied to; the
    values of local files are compared.
    """
    columns, found = opened.manifest.columns, dict[str, TiedCopy]()
    tied = tuple(tied)
    wanted = {name for x in tied for name in (x.copy, x.original)}
    stored: dict[str, list[Tensor]] = {}
    for i, name in enumerate(columns.name) if wanted else ():
        if name in wanted:
            stored.setdefault(name, []).append(opened.manifest.tensors[i])
    for x in tied:
        if x.copy in stored and x.original in stored:
            found[x.copy] = _compare(opened, x, stored[x.copy], stored[x.original])
    return tuple(found.values())


def _compare(
    opened: OpenedCheckpoint, tied: TiedNames, copy: list[Tensor], original: list[Tensor]
) -> TiedCopy:
    """Compare a stored copy with its original."""

    def result(differs: bool | None, reason: str = "") -> TiedCopy:
        return TiedCopy(tied.copy, tied.original, differs, reason)

    a, b = (
        merge_tensor(tied.original, original, tied.shape),
        merge_tensor(tied.copy, copy, tied.shape),
    )
    if a.shape != b.shape:
        return result(True, f"{list(b.shape)}, not {list(a.shape)}")
    if a.dtype != b.dtype and not {a.dtype, b.dtype} <= PLAIN_FLOATS:
        return result(True, f"{b.dtype}, not {a.dtype}")
    if opened.manifest.format != "gguf" and a.dtype not in PLAIN_FLOATS:
        return result(None, "their values are packed")
    if [x._replace(name="") for x in a.parts] == [x._replace(name="") for x in b.parts]:
        return result(False)
    if not opened.has_local_values:
        return TiedCopy(tied.copy, tied.original, None, "the files are remote", is_remote=True)
    if any(x.end > opened.manifest.files[x.file].size for x in (*a.parts, *b.parts)):
        return result(None, "the file is too short")
    try:
        stamps = tuple(_stamp(opened.manifest.files[x.file].name) for x in (*a.parts, *b.parts))
        manifest = opened.manifest.replace(
            tensors=(*a.parts, *b.parts), metadata={}, index=None, missing=(), notes=()
        )
        return result(not _have_equal_values(_Pair(a, b, stamps, manifest)))
    except (LlamathError, OSError) as error:
        return result(None, str(error))


class _Pair:
    """Two tensors to compare; two pairs are equal if they are the same bytes of the same files."""

    def __init__(
        self, a: MergedTensor, b: MergedTensor, stamps: tuple[object, ...], manifest: Manifest
    ) -> None:
        self.a, self.b, self.manifest, self._key = a, b, manifest, (a, b, stamps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pair) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _stamp(path: str) -> tuple[str, int, int, int]:
    """Return what changes when a file does."""
    status = os.stat(path)
    return os.path.abspath(path), status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=32)
def _have_equal_values(pair: _Pair) -> bool:
    """Whether two tensors have equal values; a command that opens a checkpoint several times
    reads them once.
    """
    files = TensorReader(pair.manifest)
    try:
        return have_equal_values(pair.a, pair.b, files)
    finally:
        files.close()
