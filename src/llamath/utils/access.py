"""Which files and addresses this process may read: all of them, or those that the starter of
`llamath serve --mcp` has allowed.

The rule is one for the whole process. It is checked for each name that a caller gives, before
anything looks whether it exists, and again where a file is opened: that file is reached from an
allowed folder without following a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import Command, FormatError, Name, RemoteError, safe
from .record_type import Record


class Access(Record):
    """The folders whose files may be read, and what may be requested over a network."""

    folders: tuple[str, ...]  # without links
    hub: bool = False  # repositories on the Hub, and those in its cache
    urls: bool = False  # other addresses on the web, if they are public

    def contains(self, path: str) -> bool:
        """Whether a path leads into one of the folders, after all links."""
        return self._folder_of(os.path.realpath(path or ".")) is not None

    def _folder_of(self, real: str) -> str | None:
        return next((x for x in self.folders if os.path.commonpath((x, real)) == x), None)

    def open(self, path: str, flags: int) -> int:
        """Open a file from its allowed folder down; a link that appears on the way since the
        path was resolved is not followed.
        """
        real = os.path.realpath(path)
        folder = self._folder_of(real)
        if folder is None or real == folder:
            raise _outside(path)
        *parts, name = os.path.relpath(real, folder).split(os.sep)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                inner = os.open(
                    part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
                )
                os.close(at)
                at = inner
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)


_access: list[Access] = []
"""The rule of this process; empty if everything may be read."""


@contextmanager
def only(access: Access) -> Iterator[None]:
    """Apply a rule to the whole process, its threads included, while the context lasts."""
    _access.append(access)
    try:
        yield
    finally:
        _access.remove(access)


def is_restricted() -> bool:
    """Whether only some files and addresses may be read: then a message shows nothing that a
    file says of itself.
    """
    return bool(_access)


def may_read(path: str) -> bool:
    """Whether the file or folder at a path may be read, whether it exists or not."""
    return all(x.contains(path) for x in _access)


def check_path(path: str) -> None:
    """Raise if a path may not be read; the error is the same whether anything is there or not."""
    if not may_read(path):
        raise _outside(path)


def check_address(text: str, *, is_repository: bool) -> None:
    """Raise if a repository on the Hub, or another address, may not be requested."""
    for access in _access:
        if is_repository and not access.hub:
            raise RemoteError(
                "not_allowed",
                f"{safe(text)} is a repository on the Hub, which is not asked here",
                hint=f"{Command('serve', mcp=True, allow='hub')} allows repositories on the Hub; "
                "presets need none",
            )
        if not is_repository and not (access.urls and text.startswith(("http://", "https://"))):
            raise RemoteError(
                "not_allowed",
                f"{safe(text)} is an address, which is not read here",
                hint=f"{Command('serve', mcp=True, allow='urls')} allows http:// and https:// "
                "addresses of public servers",
            )


def open_file(path: str, flags: int) -> int:
    """Open a file that may be read, and return its descriptor."""
    return _access[-1].open(path, flags) if _access else os.open(path, flags)


def quoted(text: str, limit: int = 200) -> str:
    """Return a text that a file says in quotes, for a message; where only some files may be
    read, nothing of it.
    """
    return "another" if _access else safe(repr(text), limit)


def _outside(path: str) -> FormatError:
    message = f"{safe(path)} is not in the folder that may be read here"
    return FormatError(
        "not_allowed",
        message,
        hint=f"{Command('serve', mcp=True, root=Name('dir'))} names the folder; "
        "paths are relative to it",
    )
