"""Where the files of a checkpoint lie together: a `Folder` lists and opens them, and no name that a stranger wrote leads out of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..errors import FormatError, safe
from ..strict import read_json
from .source import LocalFile, Source

T = TypeVar("T")


class Folder:
    """Files with plain names beside one another; a subclass says how to list and open them."""

    name: str

    def names(self) -> Sequence[str]:
        """What is here, sorted."""
        raise NotImplementedError

    def open(self, name: str) -> Source | None:
        """The file of this name, if there is one."""
        raise NotImplementedError

    def json(self, name: str) -> dict[str, Any]:
        """The object in a small file of this name."""
        raise NotImplementedError

    def path(self, name: str) -> str:
        """How a file here is called."""
        return f"{self.name}/{name}"

    def each(self, work: Callable[[str], T], names: Sequence[str]) -> list[T]:
        """What `work` makes of every name, in order."""
        return [work(name) for name in names]


class LocalFolder(Folder):
    """A folder on disk; `""` is the one we are in."""

    def __init__(self, path: str) -> None:
        self.name = path

    def names(self) -> Sequence[str]:
        """What the system lists."""
        try:
            return sorted(os.listdir(self.name or "."))
        except OSError as error:
            raise FormatError("unreadable", f"{safe(self.name)} cannot be listed: {error.strerror}") from None

    def open(self, name: str) -> Source | None:
        """A regular file, or a link to one that stays inside."""
        return LocalFile(inside(self.name, name)) if os.path.lexists(self.path(plain(name))) else None

    def json(self, name: str) -> dict[str, Any]:
        """Read strictly."""
        return read_json(self.path(name))

    def path(self, name: str) -> str:
        """As the system writes it."""
        return os.path.join(self.name, name)


def plain(name: str) -> str:
    """A shard's name, if it is one plain component of a path."""
    if not name or name in (".", "..") or len(name) > 255 or any(x in name for x in "/\\\0:") or any(ord(x) < 32 for x in name):
        raise FormatError("shard_name", f"the index names the file {safe(repr(name))}; only a plain name beside it is opened")
    return name


def inside(folder: str, name: str) -> str:
    """The path of a file in a folder, if no link leads out of the folder, or of the hub's cache that the folder lies in."""
    path = os.path.join(folder, plain(name))
    if os.path.islink(path):
        real, home = os.path.realpath(path), os.path.realpath(folder or ".")
        if os.path.basename(os.path.dirname(home)) == "snapshots":
            home = os.path.dirname(os.path.dirname(home))
        if os.path.commonpath((real, home)) != home:
            raise FormatError("link", f"{safe(path)} is a link that leads out of {safe(home)}")
    return path
