"""`llamath serve` with slow, many or malformed clients: every connection is limited, and other requests are still answered."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

import llamath
from support.serving import Place, served

timeouts = pytest.importorskip("llamath.web.server.timeouts")
HANG_S = 120


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with served([llamath.load("gpt2")]) as found:
        assert found.ask()[0] == found.ask(f"{found.path}choose")[0] == 200
        yield found


@pytest.fixture(scope="module")
def impatient() -> Iterator[Place]:
    """A server that waits 1.5 seconds for a request."""
    with served(
        [llamath.load("gpt2")], limits=timeouts.ConnectionLimits(request_seconds=1.5)
    ) as found:
        yield found


def connect(place: Place) -> socket.socket:
    return socket.create_connection(("127.0.0.1", place.port), timeout=HANG_S)


def request(place: Place, path: str = "choose", method: str = "GET", more: str = "") -> bytes:
    return f"{method} {place.path}{path} HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n{more}\r\n".encode()


def is_closed_by_server(link: socket.socket) -> bool:
    """Read until the server closes the connection, at most for the timeout of the socket."""
    with contextlib.suppress(ConnectionError):
        while link.recv(1 << 16):
            pass
    return True


def test_trickling_clients_are_disconnected(impatient: Place) -> None:
    """They send a byte ten times a second: of nothing, of a method, of headers."""
    starts = (b"", b"GET ", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ")
    with contextlib.ExitStack() as stack:
        links = {start: stack.enter_context(connect(impatient)) for start in starts}
        for start, link in links.items():
            link.sendall(start)
        guard = time.monotonic() + HANG_S
        while links and time.monotonic() < guard:
            for start, link in list(links.items()):
                try:
                    link.sendall(b"a")
                except ConnectionError:
                    del links[start]
            time.sleep(0.1)
        assert not links
    assert impatient.ask("/x/")[0] == 404


def test_a_second_request_has_the_same_time_limit(impatient: Place) -> None:
    with connect(impatient) as link:
        link.sendall(request(impatient, "openapi.json") + b"GET ")
        assert is_closed_by_server(link)


def test_a_client_that_does_not_read_is_disconnected() -> None:
    limits = timeouts.ConnectionLimits(response_seconds=3)
    with served([llamath.load("gpt2")], limits=limits) as place, connect(place) as link:
        many = (64 << 20) // len(
            place.ask(f"{place.path}openapi.json")[2]
        )  # responses of 64 MiB, more than all socket buffers hold
        link.settimeout(2)
        with contextlib.suppress(ConnectionError, TimeoutError):
            link.sendall(request(place, "openapi.json") * many)
        assert place.wait_for(lambda: not place.connections)
        assert place.ask("/x/")[0] == 404
        link.settimeout(HANG_S)
        got = 0
        with contextlib.suppress(ConnectionError):
            while data := link.recv(1 << 20):
                got += data.count(b"HTTP/1.1 200")
        assert got < many
        assert place.ask(f"{place.path}openapi.json")[0] == 200


def test_the_oldest_idle_connection_is_closed_to_make_room() -> None:
    limits = timeouts.ConnectionLimits(max_connections=12, request_seconds=10 * HANG_S)
    with served([llamath.load("gpt2")], limits=limits) as place:
        idle = [connect(place) for _ in range(60)]
        try:
            assert place.ask("/x/")[0] == 404
            assert is_closed_by_server(idle[0])
        finally:
            for x in idle:
                x.close()
        assert place.ask()[0] == 200


def test_pipelined_requests_are_answered_in_order(place: Place) -> None:
    paths = ["openapi.json", "nothing", "choose", "openapi.json", "model/-"] * 4
    with connect(place) as link:
        link.sendall(
            b"".join(request(place, x) for x in paths[:-1])
            + request(place, paths[-1], more="Connection: close\r\n")
        )
        text = b""
        while data := link.recv(1 << 16):
            text += data
    statuses = [int(x[:3]) for x in text.decode().split("HTTP/1.1 ")[1:]]
    assert statuses == [200, 404, 200, 200, 404] * 4


MALFORMED = [
    b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\nHost: a\nHost: b\n\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"\x00" * 1000,
    b"\r\n" * 1000,
]  # fmt: skip


def test_malformed_requests_are_refused_and_disconnected(impatient: Place) -> None:
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(connect(impatient)) for _ in MALFORMED]
        for link, raw in zip(links, MALFORMED, strict=True):
            with contextlib.suppress(ConnectionError):
                link.sendall(raw)
        for link, raw in zip(links, MALFORMED, strict=True):
            text = b""
            with contextlib.suppress(ConnectionError):
                while data := link.recv(1 << 16):
                    text += data
            refused = (b"HTTP/1.1 400", b"HTTP/1.1 421", b"HTTP/1.1 404")
            assert not text or text.startswith(refused), raw[:60]
    assert impatient.ask()[0] == 200


def test_request_body_is_not_awaited(impatient: Place) -> None:
    sent = (
        ("POST", "Content-Length: 1000000000\r\n"),
        ("GET", "Transfer-Encoding: chunked\r\n"),
        ("GET", "Content-Length: 5\r\nExpect: 100-continue\r\n"),
    )
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(connect(impatient)) for _ in sent]
        for link, (method, more) in zip(links, sent, strict=True):
            link.sendall(request(impatient, "", method, more))
        for link in links:
            assert link.recv(12) in (b"HTTP/1.1 405", b"HTTP/1.1 413")
            assert is_closed_by_server(link)
