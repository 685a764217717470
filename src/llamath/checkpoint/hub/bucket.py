"""Object stores through fsspec: `s3://`, `gs://` and the like, by name; its other schemes run programs, follow templates or chain.

Credentials are the store's own affair, in the environment or its files; an error's text is not repeated, since it may hold some.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...core.errors import ConfigError, LlamathError, MissingExtra, RemoteError, safe
from ...core.strict_json import MAX_BYTES, parse_json
from ..formats.folder import check_file_name
from ..formats.source import Source
from .http_file import BUDGET
from .remote_folder import RemoteFolder

T = TypeVar("T")
STORES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs", "memory": "fsspec"}
"""Scheme → the package that speaks it; `memory` is fsspec's own, for trials."""

INCLUDED = frozenset(("s3fs", "gcsfs"))
"""Those of the extra `hub`."""


class BucketFile(Source):
    """An object of a store, read in the blocks that are asked for."""

    def __init__(self, store: Any, path: str, name: str) -> None:
        self.name, self._store, self._path, self._left = name, store, path, BUDGET
        size = _call_store(name, lambda: store.info(path).get("size"))
        if not isinstance(size, int) or size < 0:
            raise RemoteError("range", f"{safe(name)}: the store does not say how many bytes it has")
        self.size = size

    def fetch(self, start: int, length: int) -> bytes:
        """One block."""
        if length > self._left:
            raise RemoteError("too_large", f"{safe(self.name)}: reading it would take more than is read of one file over a network")
        self._left -= length
        data = _call_store(self.name, lambda: self._store.cat_file(self._path, start=start, end=start + length)) if length else b""
        if not isinstance(data, bytes) or len(data) != length:
            raise RemoteError("range", f"{safe(self.name)}: asked for {length:,} bytes from byte {start:,}, and got others")
        return data


class BucketFolder(RemoteFolder):
    """The objects below a prefix."""

    def __init__(self, store: Any, path: str, name: str) -> None:
        self.name, self._store, self._path = name.rstrip("/"), store, path

    def names(self) -> Sequence[str]:
        """What the store lists."""
        found = _call_store(self.name, lambda: self._store.ls(self._path, detail=False))
        return sorted({posixpath.basename(str(x).rstrip("/")) for x in found} - {""})

    def open(self, name: str) -> Source | None:
        """The object, if there is one."""
        try:
            return BucketFile(self._store, posixpath.join(self._path, check_file_name(name)), self.path(name))
        except RemoteError as error:
            if error.code != "missing":
                raise
            return None

    def json(self, name: str) -> dict[str, Any]:
        """Read whole, if it is small."""
        source = self.open(name)
        if source is None:
            raise RemoteError("missing", f"{safe(self.path(name))}: there is no such thing")
        if source.size > MAX_BYTES:
            raise RemoteError("too_large", f"{safe(source.name)} has {source.size:,} bytes; at most {MAX_BYTES:,} are read")
        try:
            return parse_json(source.read(0, source.size), safe(source.name))
        except ConfigError as error:
            raise RemoteError("json", str(error)) from None


def open_bucket(text: str) -> tuple[BucketFolder, str]:
    """The folder that an address names, or that its object lies in, and the object's name or nothing."""
    scheme, _, rest = text.partition("://")
    if scheme not in STORES or "::" in text or "@" in rest.partition("/")[0]:
        raise RemoteError("scheme", f"{safe(text)}: expected one of {', '.join(STORES)}, without a user or a chain of stores")
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("fsspec", "hub") from None
    try:
        store, path = url_to_fs(text)
    except ImportError:
        if STORES[scheme] in INCLUDED:
            raise MissingExtra(STORES[scheme], "hub") from None
        raise LlamathError(f"{scheme}:// needs {STORES[scheme]}, which is not installed", hint=f"pip install {STORES[scheme]}") from None
    if _call_store(text, lambda: store.isdir(path)):
        return BucketFolder(store, path, text), ""
    return BucketFolder(store, posixpath.dirname(path), posixpath.dirname(text)), posixpath.basename(path)


def _call_store(name: str, question: Callable[[], T]) -> T:
    """What the store answers; each store raises errors of its own kind."""
    try:
        return question()
    except FileNotFoundError:
        raise RemoteError("missing", f"{safe(name)}: there is no such thing") from None
    except PermissionError:
        raise RemoteError("forbidden", f"{safe(name)}: the store denies access", hint="see the store's own credentials") from None
    except Exception as error:
        raise RemoteError("network", f"{safe(name)} cannot be read: {type(error).__name__}", hint="see the store's own settings") from None
