"""Where the files of a checkpoint lie together: a `Folder` lists and opens them, and no name that a stranger wrote leads out of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...core.errors import FormatError, safe
from ...core.strict_json import read_json
from .source import LocalFile, Source

T = TypeVar("T")
_CACHE = r"(?s:(.*)/(?:models|datasets|spaces)--[^/]+(?=/snapshots/))"


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

    def map_names(self, work: Callable[[str], T], names: Sequence[str]) -> list[T]:
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
        """A regular file, or a link to one that stays inside; a link to nothing is no file."""
        path = self.path(check_file_name(name))
        try:
            found = os.lstat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISLNK(found.st_mode):
            return LocalFile(path, found)
        return LocalFile(path) if os.path.exists(resolve_inside(self.name, name)) else None

    def json(self, name: str) -> dict[str, Any]:
        """Read strictly."""
        return read_json(resolve_inside(self.name, name))

    def path(self, name: str) -> str:
        """As the system writes it."""
        return os.path.join(self.name, name)


def check_file_name(name: str) -> str:
    """A shard's name, if it is one plain component of a path."""
    if len(name) < 100 and name.isascii() and name[:1].isalnum() and name.replace(".", "").replace("-", "").replace("_", "").isalnum():
        return name
    if not name or name in (".", "..") or safe(name, 255) != name or any(x in name for x in "/\\:"):
        raise FormatError(
            "shard_name", f"the file name {safe(repr(name))} is not opened", hint="a plain name of a file beside the others is"
        )
    return name


def resolve_inside(folder: str, name: str) -> str:
    """The path of a file in a folder, if no link leads out of the folder, or of the hub's cache that the folder lies in."""
    path = os.path.join(folder, check_file_name(name))
    if os.path.islink(path):
        real, home = os.path.realpath(path), os.path.realpath(folder or ".")
        homes = [home]
        if cache := re.match(_CACHE, home):  # a revision's files are links to the model's blobs, and those may be to all models' blobs
            homes += [cache[0], os.path.join(cache[1], "blobs")]
        if not any(os.path.commonpath((real, x)) == x for x in homes):
            raise FormatError("link", f"{safe(path)} is a link that leads out of {safe(home)}")
    return path
