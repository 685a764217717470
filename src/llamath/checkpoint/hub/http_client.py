"""An HTTP client on the standard library, with limits on time, bytes and redirects.

Each redirect is a separate request whose headers are built anew, so that a token is never forwarded
to another origin. Incoming bytes are metered below the HTTP parser, so that no header, chunk or
trailer can exceed the limits.
"""

from __future__ import annotations

import io
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Sequence
from email.message import Message
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ...utils.access import is_restricted
from ...utils.errors import RemoteError, safe
from .addresses import SocketAddress, connect, resolve
from .urls import Url, parse_url

_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
MAX_OVERHEAD, CHUNK = 256 << 10, 1 << 20
"""Maximum bytes of a response besides its body; bytes of body that are read at once."""


class Limits(NamedTuple):
    """Time limits in seconds, the number of redirects to follow, and which hosts may have
    private addresses.
    """

    connect: float = 10
    read: float = 20
    response: float = 300
    session: float = 1800
    redirects: int = 5
    # only the endpoint may have a private address; otherwise the hosts that a user names may, too
    public_only: bool = False


class Request(Protocol):
    """A request: its headers, the maximum bytes of the body, and a check of the response that
    returns the body's length, if known.
    """

    @property
    def max_bytes(self) -> int: ...

    def headers(self) -> dict[str, str]: ...

    def check(self, url: Url, response: HTTPResponse) -> int | None: ...


class Response(NamedTuple):
    """A response that passed its check, and its URL after redirects."""

    url: Url
    status: int
    headers: Any  # an email.message.Message, whose keys are case-insensitive
    body: bytes


class _Meter:
    """The remaining time and bytes of a response."""

    def __init__(
        self, where: str, read_timeout: float, end: float, max_body: int, clock: Callable[[], float]
    ) -> None:
        self.where, self.read_timeout, self.end, self.left, self.clock = (
            where,
            read_timeout,
            end,
            max_body + MAX_OVERHEAD,
            clock,
        )

    def wait(self) -> float:
        """Return the timeout for the next bytes."""
        left = self.end - self.clock()
        if left <= 0:
            raise TimeoutError
        return min(left, self.read_timeout)

    def spend(self, count: int) -> None:
        """Count received bytes."""
        self.left -= count
        if self.left < 0:
            raise RemoteError("long", f"{self.where} sent more bytes than requested")


class _MeteredSocket(io.RawIOBase):
    """A socket reader that applies a meter to each read."""

    def __init__(self, sock: socket.socket, meter: _Meter) -> None:
        self._sock, self._file, self._meter = sock, sock.makefile("rb", buffering=0), meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._meter.wait())
        count: int | None = self._file.readinto(buffer)
        self._meter.spend(count or 0)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _MeteredResponse(HTTPResponse):
    """A response read through a meter."""

    def __init__(self, meter: _Meter, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_MeteredSocket(sock, meter))


class Session:
    """A thread-safe pool of connections, and a token that is sent only to the endpoint.

    The endpoint and, unless `public_only`, the addresses that a user has named may be anywhere, and
    one at a private address may redirect to others. All other hosts have to be on the public
    internet: a redirect from there never leads into the network around this machine.
    """

    def __init__(
        self,
        endpoint: Url | None = None,
        token: str = "",
        limits: Limits | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.limits, self._endpoint, self._token, self._clock = (
            limits or Limits(),
            endpoint,
            token,
            clock,
        )
        self._public_only = self.limits.public_only or is_restricted()
        self._may_be_private = set() if endpoint is None else {endpoint.origin}
        self._is_private: set[tuple[str, str, int]] = set()
        self._until = clock() + self.limits.session
        self._idle: dict[tuple[str, str, int], list[HTTPConnection]] = {}
        self._lock = Lock()
        self._tls: ssl.SSLContext | None = None

    def parse_url(self, url: str) -> Url:
        """Parse a URL that a user has named; it is trusted with the token if it belongs to the
        endpoint and the connection is private.
        """
        parsed = parse_url(url)
        if not self._public_only:
            self._may_be_private.add(parsed.origin)
        trusted = (
            bool(self._token)
            and self._endpoint is not None
            and parsed.origin == self._endpoint.origin
        )
        return parsed._replace(is_trusted=trusted and parsed.is_private)

    def get(self, url: Url, request: Request) -> Response:
        """Send a request and follow redirects."""
        end = min(self._clock() + self.limits.response, self._until)
        start = url
        for _ in range(self.limits.redirects + 1):
            response = self._send_with_retry(url, request, end)
            if response.status not in _REDIRECT_STATUSES:
                return response
            before, url = url, url.redirected_to(response.headers.get("Location", ""))
            if before.origin in self._is_private and not self._public_only:
                self._may_be_private.add(url.origin)
        raise RemoteError(
            "redirect", f"{start.display} redirects more than {self.limits.redirects} times"
        )

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            connections = [connection for idle in self._idle.values() for connection in idle]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def _send_with_retry(self, url: Url, request: Request, end: float) -> Response:
        """Send one request, again on a new connection if it is dropped."""
        for last in (False, True):
            meter = _Meter(url.display, self.limits.read, end, request.max_bytes, self._clock)
            connection = self._connection(url, fresh=last)
            try:
                return self._send(connection, url, request, meter)
            except TimeoutError:
                connection.close()
                raise RemoteError(
                    "timeout", f"{url.display} takes too long to answer", hint="try again later"
                ) from None
            except ConnectionRefusedError as error:
                raise RemoteError(
                    "network", f"{url.display} cannot be reached: {_reason(error)}", hint=_OFFLINE
                ) from None
            except (ConnectionError, IncompleteRead, ssl.SSLEOFError) as error:
                connection.close()
                if last:
                    raise RemoteError(
                        "dropped",
                        f"{url.display}: the connection was dropped twice ({_reason(error)})",
                    ) from None
            except (HTTPException, OSError, ValueError) as error:
                connection.close()
                raise RemoteError(
                    "network", f"{url.display} cannot be reached: {_reason(error)}", hint=_OFFLINE
                ) from None
            except BaseException:
                connection.close()
                raise
        raise AssertionError

    def _send(
        self, connection: HTTPConnection, url: Url, request: Request, meter: _Meter
    ) -> Response:
        connection.response_class = partial(_MeteredResponse, meter)  # type: ignore[assignment]
        connection.timeout = min(meter.wait(), self.limits.connect)
        if connection.sock is not None:
            connection.sock.settimeout(meter.wait())
        target, headers = self._target_and_headers(url, request)
        connection.request("GET", target, headers=headers)
        with connection.getresponse() as http_response:
            if http_response.status in _REDIRECT_STATUSES:
                length = http_response.length or 0
                body = _read_body(
                    http_response, length if length <= MAX_OVERHEAD else 0, MAX_OVERHEAD, url
                )
            elif http_response.status in (200, 206, 416):
                body = _read_body(
                    http_response, request.check(url, http_response), request.max_bytes, url
                )
            else:
                raise _error_for_status(url, http_response.status, http_response.headers)
            response = Response(url, http_response.status, http_response.headers, body)
            is_complete = (
                http_response.isclosed() or http_response.length == 0
            ) and not http_response.will_close
        if is_complete:
            with self._lock:
                self._idle.setdefault(url.origin, []).append(connection)
        else:
            connection.close()
        return response

    def _target_and_headers(self, url: Url, request: Request) -> tuple[str, dict[str, str]]:
        """Return the request target and headers; only a trusted URL gets the token."""
        headers = {"User-Agent": "llamath", "Accept-Encoding": "identity", **request.headers()}
        if url.is_trusted:
            headers["Authorization"] = f"Bearer {self._token}"
        if url.scheme == "http" and (proxy := _proxy_for(url)):
            return url.url, headers | proxy.headers
        return url.path + url.query, headers

    def _connection(self, url: Url, *, fresh: bool) -> HTTPConnection:
        """Return an idle connection to a URL's origin, or a new one."""
        with self._lock:
            if not fresh and (idle := self._idle.get(url.origin)):
                return idle.pop()
            if url.scheme == "https" and self._tls is None:
                self._tls = ssl.create_default_context()
        proxy = _proxy_for(url)
        host, port = (proxy.host, proxy.port) if proxy else (url.host, url.port)
        connection = (
            HTTPConnection(host, port)
            if url.scheme == "http"
            else HTTPSConnection(host, port, context=self._tls)
        )
        if not proxy:
            connection._create_connection = partial(self._connect, url)  # type: ignore[attr-defined]
            return connection
        if url.origin not in self._may_be_private and (self._public_only or url.is_number):
            self._resolve(url)  # the proxy resolves the name again, by itself
        if url.scheme == "https":
            connection.set_tunnel(url.host, url.port, proxy.headers)
        return connection

    def _connect(
        self, url: Url, _name: tuple[str, int], timeout: float | None = None, _source: Any = None
    ) -> socket.socket:
        """Connect to one of the addresses of a host that were checked; TLS, certificates and the
        Host header keep its name.
        """
        return connect(self._resolve(url), timeout)

    def _resolve(self, url: Url) -> Sequence[SocketAddress]:
        """Return the addresses of a host; raise if one of them is private and must not be."""
        try:
            addresses = resolve(url.host, url.port)
        except (OSError, ValueError) as error:
            raise RemoteError(
                "network", f"{url.display} cannot be reached: {_reason(error)}", hint=_OFFLINE
            ) from None
        if not all(x.is_public for x in addresses):
            if url.origin not in self._may_be_private:
                raise RemoteError(
                    "private",
                    f"{url.display} has a private address, which is not requested here",
                    hint=_PRIVATE,
                )
            self._is_private.add(url.origin)
        return addresses


def _read_body(response: HTTPResponse, expected: int | None, max_bytes: int, url: Url) -> bytes:
    """Read a body of the expected length or, if that is unknown, of at most `most` bytes."""
    parts: list[bytes] = []
    got, limit = 0, max_bytes + 1 if expected is None else expected
    while got < limit and (part := response.read(min(limit - got, CHUNK))):
        parts.append(part)
        got += len(part)
    if expected is not None and got < expected:
        raise IncompleteRead(b"", expected - got)
    if got > max_bytes or (expected and not response.isclosed() and response.read(1)):
        raise RemoteError(
            "long",
            f"{url.display} sends more than {max_bytes if expected is None else expected:,} bytes",
        )
    return b"".join(parts)


def _reason(error: Exception) -> str:
    """Return the operating system's message; those of `http.client` may repeat headers."""
    return (
        safe(error.strerror or str(error), 120)
        if isinstance(error, OSError)
        else type(error).__name__
    )


_PRIVATE = (
    "an address in this network is requested only if it is HF_ENDPOINT, or named on the "
    "command line"
)
_OFFLINE = (
    "without a network, presets, local files and models in the Hugging Face cache can be used"
)
_LOGIN = (
    "if it is gated, accept its terms on its page; then set HF_TOKEN, which is sent over "
    "https alone, or run `hf auth login`"
)
_ACCESS = (
    "your token was sent and does not suffice: accept the model's terms on its page, or "
    "give the token read access to gated models"
)
_STATUS_ERRORS: dict[int, tuple[str, str, str]] = {
    401: ("unauthorized", "the model is gated or private, or does not exist", _LOGIN),
    403: ("forbidden", "access is denied", _LOGIN),
    404: (
        "missing",
        "not found",
        "check the spelling; a private model needs a token that may read it",
    ),
    407: ("proxy", "the proxy requires a password", "see https_proxy"),
    410: ("missing", "no longer available", ""),
    429: ("busy", "too many requests", "wait some minutes; with HF_TOKEN the hub allows more"),
}
_HUB_ERROR_CODES = {
    "GatedRepo": "it is gated",
    "RepoNotFound": "the model does not exist or is private",
    "RevisionNotFound": "the revision does not exist",
    "EntryNotFound": "the file does not exist",
}
"""The Hub's `X-Error-Code`; its free text is not shown, since it may contain parts of the
request."""


def _error_for_status(url: Url, status: int, headers: Message) -> RemoteError:
    """Return the error for a response that is neither a success nor a redirect."""
    default = (
        ("server", "server error", "try again later")
        if status >= 500
        else ("status", "unexpected response", "")
    )
    code, meaning, hint = _STATUS_ERRORS.get(status, default)
    meaning = _HUB_ERROR_CODES.get(headers.get("X-Error-Code", ""), meaning)
    if url.is_trusted and status in (401, 403):
        hint = _ACCESS
    return RemoteError(code, f"{url.display}: {meaning} (status {status})", hint=hint)


class _Proxy(NamedTuple):
    """An HTTP proxy; `headers` contain its password, which is sent only to it."""

    host: str
    port: int
    headers: dict[str, str]


def _proxy_for(url: Url) -> _Proxy | None:
    """Return the proxy that the environment sets for a URL (`https_proxy`, `no_proxy`); this
    machine is always reached directly.
    """
    if url.is_loopback or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    text = proxies.get(url.scheme) or proxies.get("all")
    if not text:
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme != "http":
        raise RemoteError(
            "proxy",
            f"the proxy for {url.scheme} is not an http:// URL",
            hint=f"see {url.scheme}_proxy, or no_proxy",
        )
    if parts.username is None:
        return _Proxy(host, port, {})
    secret = b64encode(
        f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    ).decode()
    return _Proxy(host, port, {"Proxy-Authorization": f"Basic {secret}"})
