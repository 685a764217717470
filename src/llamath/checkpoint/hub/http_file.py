"""`HttpFile`: a file on a web server, read by ranges and never whole; `fetch_json`: a small one, read whole.

An answer to a range must be exactly that range: status 206 (RFC 9110 §15.3.7), the Content-Range that was asked for, the size that the
file had before, as many bytes as that makes, and no encoding, since a range of a compressed file is no range of the file.
"""

from __future__ import annotations

import re
from http.client import HTTPResponse
from typing import Any, NamedTuple

from ...core.errors import ConfigError, RemoteError, safe
from ...core.strict_json import MAX_BYTES, parse_json
from ..formats.source import Source
from .http_client import Session
from .urls import Url

HEAD = 24
"""The first question asks for so many bytes: they tell the format, and the answer tells the size."""
BUDGET = 128 << 20
"""Bytes read of one file, at the most; the largest published header has some 30 million."""
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", re.ASCII)
_NO_RANGES = "the server does not serve parts of files: download the file, and give its path"


class Span(NamedTuple):
    """A question for bytes `start` to `start + most`; the size is None until the first answer."""

    start: int
    max_bytes: int
    size: int | None = None

    def headers(self) -> dict[str, str]:
        """The range."""
        return {"Range": f"bytes={self.start}-{self.start + self.max_bytes - 1}"}

    def check(self, there: Url, answer: HTTPResponse) -> int:
        """How many bytes come, if it is what was asked for."""
        if answer.status == 416 and self.size is None and answer.headers.get("Content-Range", "").strip() == "bytes */0":
            return 0
        if answer.status != 206:
            raise self._wrong(there, f"the answer {answer.status}, not 206", _NO_RANGES)
        _identity(there, answer)
        first, last, size = span(answer.headers.get("Content-Range", "")) or (-1, -1, -1)
        if size < 0:
            raise self._wrong(there, "no Content-Range that says so")
        if self.size not in (None, size):
            raise RemoteError("changed", f"{there.display} had {self.size:,} bytes and now has {size:,}: it changes while it is read")
        if (first, last) != (self.start, min(self.start + self.max_bytes, size) - 1):
            raise self._wrong(there, f"bytes {first:,} to {last:,} of {size:,}")
        if answer.length is not None and answer.length != last - first + 1:
            raise self._wrong(there, f"a body of {answer.length:,} bytes")
        return last - first + 1

    def _wrong(self, there: Url, found: str, hint: str = "") -> RemoteError:
        asked = f"asked for bytes {self.start:,} to {self.start + self.max_bytes - 1:,}"
        return RemoteError("range", f"{there.display}: {asked}, and got {found}", hint=hint)


class Whole(NamedTuple):
    """A question for a whole small file."""

    max_bytes: int

    def headers(self) -> dict[str, str]:
        """None of its own."""
        return {}

    def check(self, there: Url, answer: HTTPResponse) -> int | None:
        """How many bytes come, where the server says it."""
        if answer.status != 200:
            raise RemoteError("status", f"{there.display}: expected status 200, found {answer.status}")
        _identity(there, answer)
        if answer.length is not None and answer.length > self.max_bytes:
            raise RemoteError("too_large", f"{there.display} has {answer.length:,} bytes; at most {self.max_bytes:,} are read")
        return answer.length


class HttpFile(Source):
    """A file on a web server; the redirects to it are followed once, and its size and strong entity tag must stay what they were."""

    def __init__(self, url: str, session: Session | None = None, *, name: str = "", budget: int = BUDGET) -> None:
        self._session, self._own, self._left = session or Session(), session is None, budget
        try:
            there = self._session.parse_url(url)
            self.name = name or there.site + there.path
            reply = self._session.get(there, Span(0, HEAD))
        except BaseException:
            self.close()
            raise
        found = span(reply.headers.get("Content-Range", ""))
        self._place, self._head, self.size = reply.url, reply.body, found[2] if found else 0
        self._tag = _tag(reply.headers)

    def fetch(self, start: int, length: int) -> bytes:
        """What the first answer brought already, or one more question."""
        if not length or start + length <= len(self._head):
            return self._head[start : start + length]
        if length > self._left:
            raise RemoteError("too_large", f"{safe(self.name)}: reading it would take more than is read of one file over a network")
        self._left -= length
        reply = self._session.get(self._place, Span(start, length, self.size))
        if self._tag != _tag(reply.headers):
            raise RemoteError("changed", f"{safe(self.name)} has another entity tag than before: it changes while it is read")
        return reply.body

    def close(self) -> None:
        """Close the connection, unless others use it."""
        if self._own:
            self._session.close()


def fetch_json(session: Session, there: Url, most: int = MAX_BYTES) -> dict[str, Any]:
    """The object in a small file on a web server."""
    data = session.get(there, Whole(most)).body
    try:
        return parse_json(data, there.display)
    except ConfigError as error:
        hint = "a web page? a file's own address has /resolve/ in it, not /blob/" if data.lstrip()[:1] == b"<" else ""
        raise RemoteError("json", str(error), hint=hint) from None


def span(text: str) -> tuple[int, int, int] | None:
    """First byte, last byte and size of a Content-Range."""
    found = _RANGE.fullmatch(text.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _identity(there: Url, answer: HTTPResponse) -> None:
    encoding = ", ".join(answer.headers.get_all("Content-Encoding", [])).strip().lower()
    if encoding not in ("", "identity"):
        raise RemoteError("encoding", f"{there.display}: asked for plain bytes, and got them in {safe(encoding, 40)}")


def _tag(headers: Any) -> str:
    tag = str(headers.get("ETag", ""))
    return "" if tag.startswith("W/") else tag
