"""Read the headers of a checkpoint: a single file, the shards that an index names, or a folder,
local or remote.

An index is untrusted: its shard names must be plain file names, which is checked before anything is
opened, and a symbolic link may only lead to the model's own folder or to the Hub cache that
contains it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from ...utils.errors import ConfigError, FormatError, safe
from ...utils.file_diagnosis import (
    HEAD_BYTES,
    Diagnosis,
    diagnose,
    diagnose_name,
    missing_hint,
    unfinished_beside,
)
from .choose_files import choose_files, gguf_parts, list_names
from .folder import Folder, LocalFolder, check_file_name, check_finished
from .manifest import Manifest, ShardIndex, TensorColumns, TensorTable
from .source import LocalFile, Source

_READERS = {
    "safetensors": "safetensors",
    "gguf": "gguf",
    "torch": "torch_files.torch_checkpoint",
    "npz": "npz",
}
"""Format → module in this package that reads it, imported when it is first needed."""
Problems = list[FormatError] | None
"""A list that receives the errors of unreadable files; without one, the first error is raised."""
MAX_SHARDS = 100_000
"""Maximum number of files in an index."""


def read_checkpoint(
    path: str, problems: Problems = None, *, is_repository: bool = False
) -> Manifest:
    """Read the checkpoint at a local path; given `problems`, damaged files are listed there and
    read as far as possible.

    `is_repository`: the folder is that of a repository in the Hugging Face cache, which was named
    by its id.
    """
    check_finished(path if os.path.isdir(path) else os.path.dirname(path))
    if os.path.isdir(path):
        return read_folder(LocalFolder(path, is_repository=is_repository), problems)
    folder, name = os.path.split(path)
    if path.endswith(".index.json"):
        return read_index(LocalFolder(folder), name, problems)
    parts = gguf_parts(name)
    if len(parts) > 1:
        return read_files(LocalFolder(folder), parts, problems)
    try:
        return read_file(path)
    except FormatError as error:
        if problems is None or not isinstance(error.manifest, Manifest):
            raise
        problems.append(error)
        return error.manifest


def read_file(path: str) -> Manifest:
    """Read one local file."""
    return read_source(LocalFile(path))


def read_source(source: Source) -> Manifest:
    """Read one file in the format that its first bytes show, and close it."""
    with source:
        try:
            manifest = _reader(_detect_format(source))(source)
        except FormatError as error:
            if (unfinished := diagnose_name(source.name)) is None:
                raise
            raise _diagnosed(unfinished, error.manifest) from None
        if isinstance(source, LocalFile) and os.path.lexists(control := f"{source.name}.aria2"):
            raise _diagnosed(unfinished_beside(source.name, control), manifest)
        return manifest


def _diagnosed(found: Diagnosis, manifest: object = None) -> FormatError:
    """Return the error of a file that is something else, with the part of it that could be read."""
    error = FormatError(found.code, found.message, hint=found.hint)
    error.manifest = manifest
    return error


@cache
def _reader(kind: str) -> Callable[[Source], Manifest]:
    read: Callable[[Source], Manifest] = import_module(f".{_READERS[kind]}", __package__).read
    return read


def _detect_format(source: Source) -> str:
    """Return the format of a file by its first bytes, not by its name."""
    start = source.read(0, min(9, source.size))
    if start[:4] in (b"GGUF", b"FUGG"):
        return "gguf"
    if start[5:9] == b"\0\0\0{":  # the length of a header, whose first bytes may be any
        return "safetensors"
    if start[:4] == b"PK\x03\x04" and _is_npz(source):
        return "npz"
    if start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05"):
        return "torch"
    if found := diagnose(source.read(0, min(HEAD_BYTES, source.size)), source.name, source.size):
        raise _diagnosed(found)
    if start[8:9] == b"{" or source.name.endswith(".safetensors"):
        return "safetensors"
    message = f"{safe(source.name)} is not a known checkpoint format: it begins with {start[:8]!r}"
    raise FormatError(
        "unknown_format",
        message,
        hint="expected safetensors, GGUF, PyTorch's .pth and .bin, or .npz",
    )


def _is_npz(source: Source) -> bool:
    """Whether a ZIP archive is one of numpy: its name says so, or its first member is an array."""
    if source.name.endswith(".npz"):
        return True
    head = source.read(0, min(30, source.size))
    length = int.from_bytes(head[26:28], "little")
    return (
        len(head) == 30
        and source.size >= 30 + length
        and length < 1000
        and source.read(30, length).endswith(b".npy")
    )


def read_folder(folder: Folder, problems: Problems = None) -> Manifest:
    """Read the checkpoint in a folder: the file or index that its config names or a standard
    one, else the only set of files there is.
    """
    chosen = choose_files(folder, folder.names())
    if chosen.subfolder:
        folder = folder.inner(chosen.subfolder)
    manifest = (
        read_index(folder, chosen.index_name, problems)
        if chosen.index_name
        else read_files(folder, chosen.names, problems)
    )
    return manifest.replace(
        missing=chosen.missing, missing_index=chosen.missing_index, notes=chosen.notes
    )


def read_index(folder: Folder, name: str, problems: Problems = None) -> Manifest:
    """Read the shards that an index names; missing ones are listed in the manifest's index."""
    path = folder.path(name)
    try:
        data = folder.json(name)
    except ConfigError as error:
        raise FormatError("index", str(error), hint=error.hint) from None
    weight_map = data.get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(x, str) for x in weight_map.values())
    ):
        raise FormatError("index", f"{safe(path)}: weight_map should be an object of file names")
    shards = sorted({check_file_name(x) for x in set(weight_map.values())})
    if len(shards) > MAX_SHARDS:
        raise FormatError(
            "index", f"{safe(path)} names {len(shards):,} files; at most {MAX_SHARDS:,} are read"
        )
    result = _read(folder, shards, problems)
    manifest = (
        merge(result.manifests)
        if result.manifests
        else Manifest(format="safetensors", files=(), tensors=())
    )
    index = ShardIndex(
        path=path,
        weight_map=weight_map,
        metadata=data.get("metadata", {}),
        missing=tuple(result.missing),
        unreadable=tuple(result.unreadable),
    )
    return manifest.replace(index=index)


def read_files(folder: Folder, names: Sequence[str], problems: Problems = None) -> Manifest:
    """Read files of a folder that together are one checkpoint."""
    result = _read(folder, names, problems)
    if result.missing:
        where = safe(folder.name) or "this folder"
        hint = (
            missing_hint(folder.name or ".", result.missing)
            if isinstance(folder, LocalFolder)
            else ""
        )
        raise FormatError(
            "unreadable",
            f"{list_names(result.missing)} cannot be read: no such file in {where}",
            hint=hint,
        )
    return (
        _join_set(result.manifests)
        if len(result.manifests) == len(names)
        else merge(result.manifests)
    )


class _ReadFiles(NamedTuple):
    """The manifests of the files that could be read, and the names of the others."""

    manifests: list[Manifest]
    missing: list[str]
    unreadable: list[str]


def _read(folder: Folder, names: Sequence[str], problems: Problems) -> _ReadFiles:
    """Read the headers of these files; an error is raised, or added to `problems` if at least
    one file can be read.
    """

    def read_one(name: str) -> Manifest | FormatError | None:
        try:
            source = folder.open(name)
            return None if source is None else read_source(source)
        except FormatError as error:
            if problems is None:
                raise
            return error

    results = folder.map_names(read_one, names)
    errors = [x for x in results if isinstance(x, FormatError)]
    manifests = [x.manifest if isinstance(x, FormatError) else x for x in results]
    readable = [x for x in manifests if isinstance(x, Manifest)]
    if errors and not readable:
        raise errors[0]
    if problems is not None:
        problems += errors
    missing = [name for name, x in zip(names, results, strict=True) if x is None]
    unreadable = [
        name
        for name, x, manifest in zip(names, results, manifests, strict=True)
        if isinstance(x, FormatError) and not isinstance(manifest, Manifest)
    ]
    return _ReadFiles(readable, missing, unreadable)


def _join_set(manifests: Sequence[Manifest]) -> Manifest:
    """Merge the manifests of a set of files; parts of a split GGUF file must declare that they
    belong together.
    """
    if len(manifests) == 1:
        return manifests[0]
    if manifests[0].format != "gguf":
        return merge(manifests)
    from .gguf import join

    return join(manifests)


def merge(manifests: Sequence[Manifest]) -> Manifest:
    """Merge manifests; names that occur in several files are kept, for `verify` to report."""
    columns: tuple[list[Any], ...] = tuple([] for _ in TensorColumns._fields)
    metadata: dict[str, Any] = {}
    for i, manifest in enumerate(manifests):
        for column, values in zip(
            columns, manifest.columns._replace(file=[i] * len(manifest.tensors)), strict=True
        ):
            column += values
        metadata |= manifest.metadata
    files = tuple(file for manifest in manifests for file in manifest.files)
    return Manifest(
        format=manifests[0].format,
        files=files,
        tensors=TensorTable(TensorColumns(*columns)),
        metadata=metadata,
    )
