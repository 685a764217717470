"""Object stores through fsspec; only listed schemes (`s3://`, `gs://`, …), since fsspec's others
can run programs or chain stores.

The stores find credentials in the environment or their files; their error texts are not shown,
since they may contain credentials.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...utils.errors import ConfigError, LlamathError, MissingExtra, RemoteError, safe
from ...utils.strict_json import CONFIG_FILES, MAX_BYTES, parse_json
from ..formats.folder import check_file_name
from ..formats.source import Source
from .http_file import BUDGET
from .remote_folder import RemoteFolder

T = TypeVar("T")
_IMPLEMENTATIONS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "memory": "fsspec",
}
"""Scheme → fsspec implementation; `memory` is for tests."""

_EXTRAS = {"s3fs": "s3", "gcsfs": "gcs"}
"""Implementation → the extra that installs it."""


class _BucketFile(Source):
    """An object, read by ranges."""

    def __init__(self, store: Any, path: str, name: str) -> None:
        self.name, self._store, self._path, self._left = name, store, path, BUDGET
        size = _call_store(name, lambda: store.info(path).get("size"))
        if not isinstance(size, int) or size < 0:
            raise RemoteError("range", f"{safe(name)}: the store does not report its size")
        self.size = size

    def fetch(self, start: int, length: int) -> bytes:
        """Read a range."""
        if length > self._left:
            raise RemoteError(
                "too_large",
                f"{safe(self.name)}: the header needs more bytes than "
                "are read from one remote file",
            )
        self._left -= length
        data = (
            _call_store(
                self.name, lambda: self._store.cat_file(self._path, start=start, end=start + length)
            )
            if length
            else b""
        )
        if not isinstance(data, bytes) or len(data) != length:
            raise RemoteError(
                "range",
                f"{safe(self.name)}: requested {length:,} bytes from byte "
                f"{start:,}, received others",
            )
        return data


class _BucketFolder(RemoteFolder):
    """The objects under a prefix."""

    def __init__(self, store: Any, path: str, name: str) -> None:
        self.name, self._store, self._path = name.rstrip("/"), store, path

    def names(self) -> Sequence[str]:
        """Return the names that the store lists."""
        paths = _call_store(self.name, lambda: self._store.ls(self._path, detail=False))
        return sorted({posixpath.basename(str(x).rstrip("/")) for x in paths} - {""})

    def open(self, name: str) -> Source | None:
        """Open an object; None if there is none."""
        try:
            return _BucketFile(
                self._store, posixpath.join(self._path, check_file_name(name)), self.path(name)
            )
        except RemoteError as error:
            if error.code != "missing":
                raise
            return None

    def json(self, name: str) -> dict[str, Any]:
        """Read a small JSON object."""
        source = self.open(name)
        if source is None:
            raise RemoteError("missing", f"{safe(self.path(name))}: not found")
        if source.size > MAX_BYTES:
            raise RemoteError(
                "too_large",
                f"{safe(source.name)} has {source.size:,} bytes; at most {MAX_BYTES:,} are read",
            )
        try:
            return parse_json(
                source.read(0, source.size), safe(source.name), finite=name not in CONFIG_FILES
            )
        except ConfigError as error:
            raise RemoteError("json", str(error)) from None


def open_bucket(text: str) -> tuple[_BucketFolder, str]:
    """Return the folder at an address, or that of the object there, and the object's name or an
    empty string.
    """
    scheme, _, rest = text.partition("://")
    if scheme not in _IMPLEMENTATIONS or "::" in text or "@" in rest.partition("/")[0]:
        raise RemoteError(
            "scheme",
            f"{safe(text)}: expected one of "
            f"{', '.join(_IMPLEMENTATIONS)}, without a user name or chained stores",
        )
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("fsspec", _EXTRAS.get(_IMPLEMENTATIONS[scheme], "s3")) from None
    try:
        store, path = url_to_fs(text)
    except ImportError:
        if extra := _EXTRAS.get(_IMPLEMENTATIONS[scheme]):
            raise MissingExtra(_IMPLEMENTATIONS[scheme], extra) from None
        raise LlamathError(
            f"{scheme}:// needs {_IMPLEMENTATIONS[scheme]}, which is not installed",
            hint=f"pip install {_IMPLEMENTATIONS[scheme]}",
        ) from None
    if _call_store(text, lambda: store.isdir(path)):
        return _BucketFolder(store, path, text), ""
    return _BucketFolder(
        store, posixpath.dirname(path), posixpath.dirname(text)
    ), posixpath.basename(path)


def _call_store(name: str, call: Callable[[], T]) -> T:
    """Call a store and translate its errors."""
    try:
        return call()
    except FileNotFoundError:
        raise RemoteError("missing", f"{safe(name)}: not found") from None
    except PermissionError:
        raise RemoteError(
            "forbidden",
            f"{safe(name)}: the store denies access",
            hint="see the store's own credentials",
        ) from None
    except Exception as error:
        raise RemoteError(
            "network",
            f"{safe(name)} cannot be read: {type(error).__name__}",
            hint="see the store's own settings",
        ) from None
