"""`Source`: bounds-checked reads of a file or of bytes; `Cursor`: sequential reads with a
growing read-ahead.
"""

from __future__ import annotations

import os
import stat
import struct
from contextlib import suppress
from typing import Any, Self

from ...utils.access import check_path, open_file
from ...utils.errors import FormatError, safe
from ...utils.file_diagnosis import truncated_hint

_FIRST_WINDOW, MAX_WINDOW = 1 << 16, 1 << 20
"""Bytes that a cursor reads ahead: the first window and the largest."""
_CACHED_BYTES = 4096
"""Bytes at the start of a local file that are read at once and cached; small headers fit in."""
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Source:
    """Bytes with a name and a size; subclasses implement `fetch`, and `read` checks bounds and
    lengths.
    """

    name: str
    size: int

    def read(self, start: int, length: int) -> bytes:
        """Return exactly these bytes, or raise."""
        if start < 0 or length < 0 or start + length > self.size:
            raise self.truncated_error(start, length)
        data = self.fetch(start, length)
        if len(data) != length:
            raise self.truncated_error(start, length, start + len(data))
        return data

    def fetch(self, start: int, length: int) -> bytes:
        """Return these bytes, which are within the size found when the source was opened."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the resources of the source."""

    def truncated_error(self, start: int, length: int, end: int | None = None) -> FormatError:
        """Return the error for bytes beyond the end."""
        found = f"found its end at byte {self.size if end is None else end:,}"
        return FormatError(
            "truncated",
            f"{safe(self.name)}: expected {length:,} bytes from byte {start:,}, {found}",
            hint=truncated_hint(self.name),
            file=self.name,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Bytes(Source):
    """Bytes in memory."""

    def __init__(self, data: bytes, name: str = "<bytes>") -> None:
        self.data, self.name, self.size = data, name, len(data)

    def fetch(self, start: int, length: int) -> bytes:
        """Return a slice."""
        return self.data[start : start + length]


class Part(Source):
    """A part of another source, which stays open."""

    def __init__(self, source: Source, start: int, size: int) -> None:
        self.source, self.start, self.name, self.size = source, start, source.name, size

    def fetch(self, start: int, length: int) -> bytes:
        """Read from the other source."""
        return self.source.read(self.start + start, length)


def read_small_file(path: str, what: str, most: int) -> bytes:
    """Return the bytes of a file; one of more bytes than `most` is refused."""
    with LocalFile(path) as source:
        if source.size > most:
            raise FormatError(
                "too_large",
                f"{safe(path)}: expected {what} of at most {most:,} bytes, found {source.size:,}",
            )
        return source.read(0, source.size)


class LocalFile(Source):
    """A regular local file; pipes, devices, sockets and folders are refused without blocking or
    side effects.

    `known` is the `lstat` of a path that is not a link; if it has become a link since, it is not
    followed.
    """

    _file, _head = -1, b""

    def __init__(self, path: str | os.PathLike[str], known: os.stat_result | None = None) -> None:
        self.name = os.fspath(path)
        check_path(self.name)
        try:
            self._check(known or os.stat(path))
            self._file = open_file(
                self.name, _OPEN_FLAGS if known is None else _OPEN_FLAGS | os.O_NOFOLLOW
            )
            stat_result = os.fstat(self._file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FormatError(
                "unreadable", f"{safe(self.name)} cannot be read: {reason}", file=self.name
            ) from None
        self.size = stat_result.st_size
        try:
            self._check(stat_result)
        except FormatError:
            self.close()
            raise

    def _check(self, stat_result: os.stat_result) -> None:
        if not stat.S_ISREG(stat_result.st_mode):
            raise FormatError(
                "not_a_file",
                f"{safe(self.name)}: expected a regular file, found "
                f"a {_describe_mode(stat_result.st_mode)}",
                file=self.name,
            )

    def fetch(self, start: int, length: int) -> bytes:
        """Read these bytes, fewer only if the file has shrunk; the start of the file is cached."""
        if self._file < 0:
            raise ValueError(f"{safe(self.name)} is closed")
        if start + length > _CACHED_BYTES:
            return self._bytes(start, length)
        self._head = self._head or self._bytes(0, min(_CACHED_BYTES, self.size))
        return self._head[start : start + length]

    def _bytes(self, start: int, length: int) -> bytes:
        parts: list[bytes] = []
        try:
            while length and (part := os.pread(self._file, length, start)):
                parts.append(part)
                start, length = start + len(part), length - len(part)
        except OSError as error:
            raise FormatError(
                "unreadable",
                f"{safe(self.name)} cannot be read at byte {start:,}: {error.strerror}",
                file=self.name,
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `start`, or raise."""
        at = start
        try:
            while buffer and (count := os.preadv(self._file, [buffer], at)):
                buffer, at = buffer[count:], at + count
        except OSError as error:
            raise FormatError(
                "unreadable",
                f"{safe(self.name)} cannot be read at byte {at:,}: {error.strerror}",
                file=self.name,
            ) from None
        if buffer:
            raise self.truncated_error(at, len(buffer), at)

    def current_size(self) -> int:
        """Return the size of the file now."""
        return os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):  # all that was needed has been read
                os.close(file)

    def __del__(self) -> None:
        self.close()


def _describe_mode(mode: int) -> str:
    tests = {
        "folder": stat.S_ISDIR,
        "pipe": stat.S_ISFIFO,
        "socket": stat.S_ISSOCK,
        "device": stat.S_ISCHR,
    }
    return next((word for word, test in tests.items() if test(mode)), "device")


class Cursor:
    """A position in a source; reads ahead in growing windows, never past the end, and stops at
    `limit`.
    """

    def __init__(self, source: Source, at: int = 0, limit: int | None = None) -> None:
        self.source, self.at = source, at
        self.limit = source.size if limit is None else limit
        self._buffer, self._base, self._window = b"", at, _FIRST_WINDOW

    def require_bytes(self, length: int) -> None:
        """Raise unless this many bytes follow."""
        if self.at + length > self.source.size:
            raise self.source.truncated_error(self.at, length)
        if self.at + length > self.limit:
            raise FormatError(
                "too_large",
                f"{safe(self.source.name)}: expected a header of at "
                f"most {self.limit:,} bytes, found more",
                file=self.source.name,
            )

    def peek(self, length: int) -> tuple[bytes, int]:
        """Return a buffer and the cursor's position in it, with at least `length` bytes to
        follow.
        """
        offset = self.at - self._base
        if offset < 0 or offset + length > len(self._buffer):
            self.require_bytes(length)
            size = min(max(length, self._window), self.source.size - self.at)
            self._buffer, self._base, self._window = (
                self.source.read(self.at, size),
                self.at,
                min(self._window * 2, MAX_WINDOW),
            )
            offset = 0
        return self._buffer, offset

    def take(self, length: int) -> bytes:
        """Read the next bytes."""
        buffer, offset = self.peek(length)
        self.at += length
        return buffer[offset : offset + length]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read the next numbers."""
        buffer, offset = self.peek(layout.size)
        self.at += layout.size
        return layout.unpack_from(buffer, offset)

    def skip(self, length: int) -> None:
        """Skip bytes without reading them."""
        self.require_bytes(length)
        self.at += length
