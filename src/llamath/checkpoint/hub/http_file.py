"""`HttpFile`: a file on a web server, read by ranges; `fetch_json`: a small JSON file, read whole.

A response to a range request must be exactly that range: status 206 (RFC 9110 §15.3.7), the
requested Content-Range, an unchanged file size, the right number of bytes, and no content encoding,
which would apply to the whole file.
"""

from __future__ import annotations

import re
from http.client import HTTPResponse
from typing import Any, NamedTuple

from ...utils.errors import ConfigError, RemoteError, safe
from ...utils.strict_json import CONFIG_FILES, MAX_BYTES, parse_json
from ..formats.source import Source
from .http_client import Session
from .urls import Url

_FIRST_BYTES = 24
"""Bytes of the first request, which show the format; the response has the file size."""
BUDGET = 128 << 20
"""Maximum bytes read from one file; the largest published header has about 30 million."""
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", re.ASCII)
_NO_RANGES = "the server does not support range requests: download the file and give its path"


class _RangeRequest(NamedTuple):
    """A request for `max_bytes` bytes from `start`; the file size is None until the first
    response.
    """

    start: int
    max_bytes: int
    size: int | None = None

    def headers(self) -> dict[str, str]:
        """Return the Range header."""
        return {"Range": f"bytes={self.start}-{self.start + self.max_bytes - 1}"}

    def check(self, url: Url, response: HTTPResponse) -> int:
        """Check that the response is the requested range and return its length."""
        if (
            response.status == 416
            and self.size is None
            and response.headers.get("Content-Range", "").strip() == "bytes */0"
        ):
            return 0
        if response.status != 206:
            raise self._wrong(url, f"status {response.status}, not 206", _NO_RANGES)
        _require_no_encoding(url, response)
        first, last, size = _parse_content_range(response.headers.get("Content-Range", "")) or (
            -1,
            -1,
            -1,
        )
        if size < 0:
            raise self._wrong(url, "no valid Content-Range")
        if self.size not in (None, size):
            raise RemoteError(
                "changed",
                f"{url.display} had {self.size:,} bytes and now has "
                f"{size:,}: it changed while it was read",
            )
        if (first, last) != (self.start, min(self.start + self.max_bytes, size) - 1):
            raise self._wrong(url, f"bytes {first:,} to {last:,} of {size:,}")
        if response.length is not None and response.length != last - first + 1:
            raise self._wrong(url, f"a body of {response.length:,} bytes")
        return last - first + 1

    def _wrong(self, url: Url, found: str, hint: str = "") -> RemoteError:
        requested = f"requested bytes {self.start:,} to {self.start + self.max_bytes - 1:,}"
        return RemoteError("range", f"{url.display}: {requested}, received {found}", hint=hint)


class _FileRequest(NamedTuple):
    """A request for a whole small file."""

    max_bytes: int

    def headers(self) -> dict[str, str]:
        """Return no headers."""
        return {}

    def check(self, url: Url, response: HTTPResponse) -> int | None:
        """Check the response and return its length, if the server declares it."""
        if response.status != 200:
            raise RemoteError(
                "status", f"{url.display}: expected status 200, found {response.status}"
            )
        _require_no_encoding(url, response)
        if response.length is not None and response.length > self.max_bytes:
            raise RemoteError(
                "too_large",
                f"{url.display} has {response.length:,} bytes; at most {self.max_bytes:,} are read",
            )
        return response.length


class HttpFile(Source):
    """A file on a web server; redirects are followed once, and its size and strong entity tag
    must not change.
    """

    def __init__(
        self, url: str, session: Session | None = None, *, name: str = "", budget: int = BUDGET
    ) -> None:
        self._session, self._own, self._left = session or Session(), session is None, budget
        try:
            parsed_url = self._session.parse_url(url)
            self.name = name or parsed_url.site + parsed_url.path
            response = self._session.get(parsed_url, _RangeRequest(0, _FIRST_BYTES))
        except BaseException:
            self.close()
            raise
        content_range = _parse_content_range(response.headers.get("Content-Range", ""))
        self._place, self._head, self.size = (
            response.url,
            response.body,
            content_range[2] if content_range else 0,
        )
        self._tag = _strong_etag(response.headers)

    def fetch(self, start: int, length: int) -> bytes:
        """Return bytes of the first response, or send another request."""
        if not length or start + length <= len(self._head):
            return self._head[start : start + length]
        if length > self._left:
            raise RemoteError(
                "too_large",
                f"{safe(self.name)}: the header needs more bytes than "
                "are read from one remote file",
            )
        self._left -= length
        response = self._session.get(self._place, _RangeRequest(start, length, self.size))
        if self._tag != _strong_etag(response.headers):
            raise RemoteError(
                "changed",
                f"{safe(self.name)} has a different entity tag than "
                "before: it changed while it was read",
            )
        return response.body

    def close(self) -> None:
        """Close the session if it is this file's own."""
        if self._own:
            self._session.close()


def fetch_json(session: Session, url: Url, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read the JSON object in a small file."""
    data = session.get(url, _FileRequest(max_bytes)).body
    try:
        return parse_json(data, url.display, finite=url.path.rpartition("/")[2] not in CONFIG_FILES)
    except ConfigError as error:
        hint = (
            "is this a web page? the URL of a file contains /resolve/, not /blob/"
            if data.lstrip()[:1] == b"<"
            else ""
        )
        raise RemoteError("json", str(error), hint=hint) from None


def _parse_content_range(text: str) -> tuple[int, int, int] | None:
    """Parse a Content-Range into first byte, last byte and file size."""
    match = _RANGE.fullmatch(text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _require_no_encoding(url: Url, response: HTTPResponse) -> None:
    encoding = ", ".join(response.headers.get_all("Content-Encoding", [])).strip().lower()
    if encoding not in ("", "identity"):
        raise RemoteError(
            "encoding", f"{url.display}: expected no content encoding, found {safe(encoding, 40)}"
        )


def _strong_etag(headers: Any) -> str:
    tag = str(headers.get("ETag", ""))
    return "" if tag.startswith("W/") else tag
