"""The marker in the hidden folder of a conversion: its fingerprint, the names of its files, and a
seal that proves that this user wrote it.

A folder from elsewhere can contain such a hidden folder, and what is restored or finished moves
files. So a marker counts only with a seal by a key of this user, which is kept outside of all
checkpoints, and only in the file for which it was made: a copy has no valid seal.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from ...utils.errors import safe
from ...utils.private_folder import find_foreign, make_private_folder, user_folder

STAGING_FOLDER = ".llamath-convert"
"""The hidden folder in which a conversion writes its files."""
PLAN, MOVING, MOVED = "plan", "moving", "moved"
"""Names of the marker: before its files are moved to their places, meanwhile, and after the last
one."""
FOREIGN_HINT = (
    f"get the folder again; or look into {STAGING_FOLDER}, whose folder `old` has the files that "
    "a conversion replaces, and delete it"
)
_KEY_FILE, _KEY_BYTES = "conversion.key", 32
_MAX_BYTES = 2**24
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Marker(NamedTuple):
    """A marker whose seal is valid."""

    fingerprint: str
    names: tuple[str, ...]


class ForeignMarkerError(Exception):
    """A marker that this user did not write on this machine, or that is damaged."""


def open_folder(path: str, parent: int | None = None) -> int:
    """Open a real folder, without following a link; with `parent`, a name in that folder."""
    return os.open(path, _OPEN | os.O_DIRECTORY, dir_fd=parent)


def seal_marker(file: int, marker: Marker, key: bytes) -> bytes:
    """Return the bytes of a marker that is written to an open file."""
    body = "\n".join((marker.fingerprint, *marker.names)).encode()
    return _seal(key, file, body) + b"\n" + body


def read_marker(folder: int, name: str, key: bytes) -> Marker | None:
    """Return a marker in an open folder; None if there is none, and an error if this key did not
    seal it for this file.
    """
    from hmac import compare_digest

    try:
        file = os.open(name, _OPEN, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise ForeignMarkerError from None
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
            raise ForeignMarkerError
        data = b""
        while part := os.read(file, _MAX_BYTES + 1 - len(data)):
            data += part
        seal, _, body = data.partition(b"\n")
        if not compare_digest(seal, _seal(key, file, body)):
            raise ForeignMarkerError
    finally:
        os.close(file)
    fingerprint, *names = body.decode().split("\n")
    if not all(map(is_plain_name, names)):
        raise ForeignMarkerError
    return Marker(fingerprint, tuple(names))


def is_plain_name(name: str) -> bool:
    """Whether a text names an entry of a folder and nothing else."""
    return (
        name not in ("", ".", "..")
        and not any(x in name for x in "/\0\n")
        and (os.sep == "/" or os.sep not in name)
    )


def is_own_move(folder: str) -> bool:
    """Whether the unfinished move in a folder was begun by this user on this machine."""
    with suppress(OSError, ForeignMarkerError):
        hidden = open_folder(os.path.join(folder, STAGING_FOLDER))
        try:
            return read_marker(hidden, MOVING, own_key(create=False)[0]) is not None
        finally:
            os.close(hidden)
    return False


def own_key(*, create: bool) -> tuple[bytes, bool]:
    """Return the key of this user, and whether it is kept: without a private folder for it, it
    is that of this process.
    """
    folder = user_folder("XDG_STATE_HOME", os.path.join(".local", "state"))
    if folder is None or (create and make_private_folder(folder)):
        return _process_key(), False
    path = os.path.join(folder, _KEY_FILE)
    with suppress(OSError):
        if key := _read_key(path) or (_write_key(folder, path) if create else b""):
            return key, True
    return _process_key(), False


@lru_cache(maxsize=1)
def _process_key() -> bytes:
    return os.urandom(_KEY_BYTES)


def _read_key(path: str) -> bytes:
    """Return the key in a file; empty if there is none."""
    try:
        file = os.open(path, _OPEN)
    except FileNotFoundError:
        return b""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or find_foreign(path):
            raise PermissionError(errno.EPERM, "others can read or change the key", safe(path))
        key = os.read(file, _KEY_BYTES + 1)
    finally:
        os.close(file)
    if len(key) != _KEY_BYTES:
        raise PermissionError(errno.EINVAL, "no key", safe(path))
    return key


def _write_key(folder: str, path: str) -> bytes:
    """Create a key, whole and on the disk or not at all; returns the one that counts, which may
    be another process's.
    """
    partial = os.path.join(folder, f"{_KEY_FILE}.{os.urandom(8).hex()}")
    file = os.open(
        partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        try:
            os.write(file, os.urandom(_KEY_BYTES))
            os.fsync(file)
        finally:
            os.close(file)
        try:
            os.link(partial, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            os.rename(partial, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)
    handle = open_folder(folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return _read_key(path)


def _seal(key: bytes, file: int, body: bytes) -> bytes:
    """Return the seal of a text in this very file: its inode and owner as they are, but not its
    device, which a restart may number anew.
    """
    import hmac  # only where there is a conversion

    found = os.fstat(file)
    text = f"llamath conversion {found.st_ino} {found.st_uid} {os.geteuid()}\n".encode() + body
    return hmac.new(key, text, "sha256").hexdigest().encode()
