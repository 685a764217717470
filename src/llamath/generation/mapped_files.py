"""`MappedFiles`: the files of a checkpoint, memory-mapped."""

from __future__ import annotations

import mmap
import os

from ..checkpoint.formats import gguf
from ..checkpoint.formats.manifest import Manifest
from ..checkpoint.formats.source import LocalFile
from ..utils.errors import FormatError, LlamathError, safe


class MappedFiles:
    """A checkpoint's files, each mapped once, for as long as a tensor uses it; writes to a
    tensor never reach the file.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._files, self._gguf = manifest.files, manifest.format == "gguf"
        self._mappings: dict[int, tuple[mmap.mmap, bool]] = {}

    def map_file(self, number: int) -> tuple[mmap.mmap, bool]:
        """Return the mapping of a file, and whether the file is big-endian."""
        if number not in self._mappings:
            self._mappings[number] = self._open(number)
        return self._mappings[number]

    def _open(self, number: int) -> tuple[mmap.mmap, bool]:
        name, size = self._files[number].name, self._files[number].size
        with LocalFile(name) as source:
            if source.size != size:
                raise FormatError(
                    "changed",
                    f"{safe(name)} changed: it had {size:,} bytes when its header was "
                    f"read, and has {source.size:,} now",
                )
            big_endian = self._gguf and gguf.preamble(source).order == ">"
        return _map(name, size), big_endian

    def check_sizes(self) -> None:
        """Raise if a mapped file has become shorter: reading the rest would end the process."""
        for number, size in ((i, self._files[i].size) for i in self._mappings):
            name = self._files[number].name
            try:
                found = f"{now:,} bytes" if (now := os.stat(name).st_size) < size else ""
            except OSError:
                continue  # a deleted or renamed file stays mapped
            if found:
                raise FormatError(
                    "changed",
                    f"{safe(name)} was truncated while it was in use: expected {size:,} bytes, "
                    f"found {found}",
                    hint="restore the file; to replace a model in use, write another file and "
                    "rename it",
                )

    def release_pages(self) -> None:
        """Return the pages of the files to the system; they are read again when needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapping, _ in self._mappings.values():
                mapping.madvise(mmap.MADV_DONTNEED)


def _map(name: str, size: int) -> mmap.mmap:
    """Map a file copy-on-write, or read-only where the system would reserve memory for copies."""
    problem: Exception | None = None
    for access in (mmap.ACCESS_COPY, mmap.ACCESS_READ):
        try:
            with open(name, "rb") as file:
                return mmap.mmap(file.fileno(), size, access=access)
        except (OSError, ValueError) as error:
            problem = error
    raise LlamathError(f"{safe(name)} cannot be mapped into memory: {problem}")
