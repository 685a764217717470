"""`Folder`: list and open the files of a checkpoint; no file name from an untrusted index can
lead out of it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...utils.access import check_path, quoted
from ...utils.errors import FormatError, safe
from ...utils.strict_json import read_json
from .conversion_marker import FOREIGN_HINT, MOVING, STAGING_FOLDER, is_own_move
from .source import LocalFile, Source

T = TypeVar("T")
_CACHE = r"(?s:(.*)/(?:models|datasets|spaces)--[^/]+(?=/snapshots/))"


class Folder:
    """A flat folder of files; subclasses implement listing and opening."""

    name: str
    is_read_by_transformers = False
    is_repository = False

    def names(self) -> Sequence[str]:
        """Return the sorted names of its files."""
        raise NotImplementedError

    def open(self, name: str) -> Source | None:
        """Open the file with this name; None if there is none."""
        raise NotImplementedError

    def json(self, name: str) -> dict[str, Any]:
        """Read the JSON object in a small file."""
        raise NotImplementedError

    def inner(self, path: str) -> Folder:
        """Return a folder in this one."""
        raise FormatError(
            "shard_name", f"{safe(path)} is in a folder of its own", hint="name the file itself"
        )

    def path(self, name: str) -> str:
        """Return the path or address of a file in this folder."""
        return f"{self.name}/{name}"

    def map_names(self, work: Callable[[str], T], names: Sequence[str]) -> list[T]:
        """Return the result of `work` for every name, in order."""
        return [work(name) for name in names]


class LocalFolder(Folder):
    """A local folder; an empty path is the current one."""

    is_read_by_transformers = True

    def __init__(self, path: str, is_repository: bool = False) -> None:
        self.name, self.is_repository = path, is_repository

    def names(self) -> Sequence[str]:
        """Return the sorted names of the entries."""
        check_path(self.name)
        try:
            return sorted(os.listdir(self.name or "."))
        except OSError as error:
            raise FormatError(
                "unreadable", f"{safe(self.name)} cannot be listed: {error.strerror}"
            ) from None

    def open(self, name: str) -> Source | None:
        """Open a regular file or a link to one inside the folder; None for a dangling link."""
        path = self.path(check_file_name(name))
        try:
            stat_result = os.lstat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISLNK(stat_result.st_mode):
            return LocalFile(path, stat_result)
        return LocalFile(path) if os.path.exists(resolve_inside(self.name, name)) else None

    def json(self, name: str) -> dict[str, Any]:
        """Read the JSON object strictly."""
        return read_json(resolve_inside(self.name, name))

    def inner(self, path: str) -> Folder:
        """Return a folder in this one; links out of it are not followed."""
        target = os.path.join(self.name, *map(check_file_name, path.split("/")))
        own = os.path.realpath(self.name or ".")
        if os.path.commonpath((os.path.realpath(target), own)) != own:
            raise FormatError("link", f"{safe(target)} is a symbolic link out of {safe(own)}")
        return LocalFolder(target)

    def path(self, name: str) -> str:
        """Return the local path."""
        return os.path.join(self.name, name)


def check_finished(folder: str) -> None:
    """Raise if a conversion was interrupted while it replaced the files of this folder, some of
    which may be missing or new.
    """
    if not os.path.lexists(os.path.join(folder, STAGING_FOLDER, MOVING)):
        return
    expected = f"{safe(folder) or 'this folder'}: expected a checkpoint, found"
    if not is_own_move(folder):
        found = (
            f"{STAGING_FOLDER}, which marks a conversion that this user has not begun on "
            "this machine"
        )
        raise FormatError("unfinished", f"{expected} {found}", hint=FOREIGN_HINT)
    raise FormatError(
        "unfinished",
        f"{expected} a conversion that was interrupted while it replaced the files",
        hint="repeat the conversion to finish it; another one into this folder restores the "
        "previous files",
    )


def check_file_name(name: str) -> str:
    """Return a file name if it is a single plain component of a path; raise otherwise."""
    if (
        len(name) < 100
        and name.isascii()
        and name[:1].isalnum()
        and name.replace(".", "").replace("-", "").replace("_", "").isalnum()
    ):
        return name
    if not name or name in (".", "..") or safe(name, 255) != name or any(x in name for x in "/\\:"):
        raise FormatError(
            "shard_name",
            f"expected a plain file name, found {quoted(name)}",
            hint="an index may name only files in its own folder",
        )
    return name


def resolve_inside(folder: str, name: str) -> str:
    """Return the path of a file in a folder; raise if it is a link out of the folder and out of the
    Hub cache around it.

    Every file of a model's folder is opened by this rule: weights, configuration, tokenizer and
    chat template.
    """
    path = os.path.join(folder, check_file_name(name))
    if os.path.islink(path):
        target, own_folder = os.path.realpath(path), os.path.realpath(folder or ".")
        allowed = [own_folder]
        # files of a revision link to the model's blobs, which may link to blobs shared by all
        # models
        if cache := re.match(_CACHE, own_folder):
            allowed += [cache[0], os.path.join(cache[1], "blobs")]
        if not any(os.path.commonpath((target, x)) == x for x in allowed):
            raise FormatError(
                "link",
                f"{safe(path)} is a symbolic link out of {safe(own_folder)}",
                hint="replace it by a copy of the file if you trust it",
            )
    return path
