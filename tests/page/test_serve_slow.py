"""`llamath serve` and those who are slow, many or rude: each connection has its time, and a plain request is answered beside them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

import llamath
from support.serving import Place, served

patience = pytest.importorskip("llamath.web.server.timeouts")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch, served([llamath.load("gpt2")]) as found:
        assert found.ask()[0] == found.ask(f"{found.path}choose")[0] == 200
        for name, limit in (("head", 1.5), ("answer", 1.5), ("most", 12)):
            patch.setattr(patience.Patient, name, limit)
        yield found


def wire(place: Place) -> socket.socket:
    return socket.create_connection(("127.0.0.1", place.port), timeout=20)


def request(place: Place, path: str = "choose", method: str = "GET", more: str = "") -> bytes:
    return f"{method} {place.path}{path} HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n{more}\r\n".encode()


def ended(link: socket.socket) -> bool:
    """Whether the other side has closed; what it sent before is read."""
    with contextlib.suppress(ConnectionError):
        while link.recv(1 << 16):
            pass
    return True


@pytest.mark.parametrize("start", [b"", b"GET ", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "], ids=["nothing", "a method", "headers"])
def test_whoever_trickles_is_cut_off(place: Place, start: bytes) -> None:
    with wire(place) as link:
        link.sendall(start)
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 15:
                link.sendall(b"a")
                time.sleep(0.1)
        assert time.monotonic() - began < 14
    assert place.ask("/x/")[0] == 404


def test_a_second_request_has_no_more_time_than_a_first(place: Place) -> None:
    with wire(place) as link:
        link.sendall(request(place, "openapi.json") + b"GET ")
        began = time.monotonic()
        assert ended(link) and time.monotonic() - began < 14


def test_whoever_does_not_read_is_cut_off(place: Place) -> None:
    many = 300
    with wire(place) as link:
        link.settimeout(2)
        with contextlib.suppress(ConnectionError, TimeoutError):
            link.sendall(request(place) * many)
        assert place.ask("/x/")[0] == 404
        time.sleep(2)
        link.settimeout(20)
        got = 0
        with contextlib.suppress(ConnectionError):
            while data := link.recv(1 << 20):
                got += data.count(b"HTTP/1.1 200")
        assert got < many
    assert place.ask()[0] == 200


def test_the_oldest_idle_connection_makes_room(place: Place) -> None:
    held = [wire(place) for _ in range(60)]
    try:
        assert place.ask("/x/")[0] == 404
        held[0].settimeout(20)
        began = time.monotonic()
        assert ended(held[0]) and time.monotonic() - began < 14
    finally:
        for x in held:
            x.close()
    assert place.ask()[0] == 200


def test_requests_in_one_go_are_answered_in_order(place: Place) -> None:
    paths = ["openapi.json", "nothing", "choose", "openapi.json", "model/-"] * 4
    with wire(place) as link:
        link.sendall(b"".join(request(place, x) for x in paths[:-1]) + request(place, paths[-1], more="Connection: close\r\n"))
        text = b""
        while data := link.recv(1 << 16):
            text += data
    statuses = [int(x[:3]) for x in text.decode().split("HTTP/1.1 ")[1:]]
    assert statuses == [200, 404, 200, 200, 404] * 4


@pytest.mark.parametrize(
    "raw",
    [
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
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_ended(place: Place, raw: bytes) -> None:
    with wire(place) as link:
        with contextlib.suppress(ConnectionError):
            link.sendall(raw)
        link.settimeout(20)
        text = b""
        with contextlib.suppress(ConnectionError):
            while data := link.recv(1 << 16):
                text += data
    assert not text or text.startswith((b"HTTP/1.1 400", b"HTTP/1.1 421", b"HTTP/1.1 404"))
    assert place.ask()[0] == 200


def test_a_body_is_not_waited_for(place: Place) -> None:
    for method, more in (
        ("POST", "Content-Length: 1000000000\r\n"),
        ("GET", "Transfer-Encoding: chunked\r\n"),
        ("GET", "Content-Length: 5\r\nExpect: 100-continue\r\n"),
    ):
        with wire(place) as link:
            link.sendall(request(place, "", method, more))
            assert link.recv(12) in (b"HTTP/1.1 405", b"HTTP/1.1 413")
            assert ended(link)
