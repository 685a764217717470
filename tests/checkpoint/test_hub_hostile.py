"""Misbehaving servers, each with the code of the error: wrong ranges, decompression bombs, redirects, timeouts, unsafe names."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from collections.abc import Callable, Mapping

import pytest

from llamath.checkpoint.hub import HttpFile, Limits, Session, read_remote
from llamath.checkpoint.hub.urls import parse_url
from llamath.utils.errors import FormatError, LlamathError, RemoteError
from support.cost_limits import HANG_S, hang_guard
from support.hub_server import (
    COMMIT,
    DATA,
    QUICK,
    SHARDS,
    Handler,
    Hub,
    Page,
    Site,
    file,
    indexed,
    raw,
    redirect,
    safetensors,
    status,
)

pytestmark = pytest.mark.usefixtures("alone")
Pair = tuple[Site, Site]


# names and responses of the API


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (status(200, {}, b"<!doctype html><html>log in</html>"), "json"),
        (status(200, {}, b""), "json"),
        (status(200, {}, b"[]"), "json"),
        (status(200, {}, b'{"sha": NaN}'), "json"),
        (status(200, {}, b"{" * 100_000), "json"),
        (status(200, {}, b'{"sha": "\xff"}'), "json"),
        (status(200, {}, b"{}"), "api"),
        (status(200, {}, b'{"sha": "../../evil", "siblings": []}'), "api"),
        (status(200, {}, b'{"sha": "0123456789abcdef0123456789abcdef01234567\\n"}'), "api"),
        (status(200, {}, json.dumps({"sha": COMMIT, "siblings": {}}).encode()), "api"),
        (status(200, {"Content-Length": "9000000000"}), "too_large"),
        (raw(b"HTTP/1.1 200 OK\r\n\r\n", *[b" " * (1 << 20)] * 10), "long"),
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"100000\r\n" + b" " * (1 << 20) + b"\r\n"] * 10), "long"),
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", *[b" " * (1 << 20)] * 10), "long"),
        (status(200, {"Content-Encoding": "gzip"}, gzip.compress(b" " * 1_000_000)), "encoding"),
    ],
)  # fmt: skip
def test_arbitrary_api_responses_are_refused(pair: Pair, page: Page, code: str) -> None:
    hub = Hub(*pair, {"model.safetensors": safetensors({"a": (2,)})})
    pair[0].pages[hub.api] = page
    with pytest.raises(RemoteError) as error:
        read_remote("org/name", limits=Limits(response=10))
    assert error.value.code == code


NAMES = [
    "../../../etc/passwd",
    "/etc/passwd",
    "..",
    "a/b.safetensors",
    "a\r\nX-Injected: 1",
    "a\0b",
    "\\\\host\\x",
    "",
    "x" * 300,
    "C:x",
]


@pytest.mark.parametrize("name", NAMES)
def test_index_with_paths_is_refused(pair: Pair, name: str) -> None:
    endpoint, store = pair
    index = json.dumps({"weight_map": {"a": name}}).encode()
    Hub(endpoint, store, {"model.safetensors.index.json": index, "evil": b"x"})
    store.pages["/model.safetensors.index.json"] = file(index)
    for text in ("org/name", f"{store.url}/model.safetensors.index.json"):
        with pytest.raises(FormatError) as error:
            read_remote(text)
        assert error.value.code == "shard_name"
        assert not set(str(error.value)) & set("\r\n\0")
    assert [x.path for x in store.seen] == ["/model.safetensors.index.json"]


@pytest.mark.parametrize("name", [*NAMES, "\ud800.safetensors"])
def test_unsafe_names_of_the_api_are_ignored(pair: Pair, name: str) -> None:
    hub = Hub(*pair, {"model.safetensors": safetensors({"a": (2,)})})
    siblings = [{"rfilename": x} for x in (name, "model.safetensors")] + [
        None,
        {"rfilename": 7},
        {},
    ]
    hub.api_answer(status(200, {}, json.dumps({"sha": COMMIT, "siblings": siblings}).encode()))
    assert len(read_remote("org/name").manifest.tensors) == 1
    hub.api_answer(status(200, {}, json.dumps({"sha": COMMIT, "siblings": siblings[:1]}).encode()))
    with pytest.raises((FormatError, RemoteError)):
        read_remote("org/name")
    assert not any("x-injected" in x.headers or ".." in x.path for x in pair[0].seen)


def test_unusual_plain_names_are_quoted(pair: Pair) -> None:
    files = {"100% größer?#&=+ x.safetensors": safetensors({"a": (2,)})}
    Hub(*pair, files)
    remote = read_remote("org/name").manifest
    assert remote.files[0].name == f"hf://org/name@{COMMIT}/100% größer?#&=+ x.safetensors"


# servers that misbehave

HEAD = f"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-23/{len(DATA)}\r\n".encode()


def range_response(change: Callable[[int, int, Handler], None]) -> Page:
    """Respond to a range request as `change` does, which gets the first and last byte."""

    def page(handler: Handler) -> None:
        first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
        change(int(first), int(last), handler)

    return page


def partial_response(
    content_range: str, extra: int = 0, headers: Mapping[str, str] | None = None, code: int = 206
) -> Page:
    """Return a response with status 206, this Content-Range, and a body that is `extra` bytes longer than the range."""

    def page(first: int, last: int, handler: Handler) -> None:
        written = content_range.format(
            first=first, last=last, size=len(DATA), before=first - 1, after=last + 1
        )
        body = (DATA + bytes(99))[first : last + 1 + extra]
        handler.answer(code, body, {"Content-Range": written, **(headers or {})})

    return range_response(page)


GOOD = "bytes {first}-{last}/{size}"
HOSTILE: dict[str, tuple[Page, str]] = {
    "ignores Range": (status(200, {}, DATA), "range"),
    "ignores Range, endless": (raw(b"HTTP/1.1 200 OK\r\n\r\n", *[bytes(1 << 20)] * 5), "range"),
    "starts later": (partial_response("bytes {after}-{last}/{size}"), "range"),
    "ends earlier": (partial_response("bytes {first}-{first}/{size}"), "range"),
    "ends later": (partial_response("bytes {first}-{after}/{size}", 1), "range"),
    "no Content-Range": (raw(b"HTTP/1.1 206 OK\r\nContent-Length: 24\r\n\r\n", DATA[:24]), "range"),
    "size unknown": (partial_response("bytes {first}-{last}/*"), "range"),
    "size smaller than range": (partial_response("bytes {first}-{last}/3"), "range"),
    "range in items": (partial_response("items {first}-{last}/{size}"), "range"),
    "range negative": (partial_response("bytes -{first}-{last}/{size}"), "range"),
    "range in other digits": (raw(HEAD.replace(b"0-23", "٠-23".encode()) + b"Content-Length: 24\r\n\r\n", DATA[:24]), "range"),
    "multipart": (raw(b"HTTP/1.1 206 OK\r\nContent-Type: multipart/byteranges\r\nContent-Length: 24\r\n\r\n", DATA[:24]), "range"),
    "206 that says 416": (partial_response("bytes */{size}", code=416), "range"),
    "longer body": (partial_response(GOOD, 7), "range"),
    "shorter body": (partial_response(GOOD, -7), "range"),
    "shorter than promised": (raw(HEAD + b"Content-Length: 24\r\n\r\n", DATA[:7]), "dropped"),
    "shorter than promised, and waits": (partial_response(GOOD, -7, {"Content-Length": "24"}), "timeout"),
    "longer, chunked": (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1f\r\n" + DATA[:31] + b"\r\n0\r\n\r\n"), "long"),
    "longer, until the end": (raw(HEAD + b"\r\n", DATA[:31]), "long"),
    "shorter, until the end": (raw(HEAD + b"\r\n", DATA[:7]), "dropped"),
    "shorter, chunked": (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"7\r\n" + DATA[:7] + b"\r\n0\r\n\r\n"), "dropped"),
    "chunk without end": (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", *[bytes(1 << 19)] * 4), "long"),
    "chunk of nonsense": (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), "dropped"),
    "gzip": (raw(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 24\r\n\r\n", gzip.compress(bytes(10_000_000), 1)[:24]), "encoding"),
    "gzip twice": (partial_response(GOOD, headers={"Content-Encoding": "identity, gzip"}), "encoding"),
    "brotli": (partial_response(GOOD, headers={"Content-Encoding": "br"}), "encoding"),
    "redirects to itself": (redirect("/x"), "redirect"),
    "redirects nowhere": (status(302), "redirect"),
    "redirects to a file": (redirect("file:///etc/passwd"), "redirect"),
    "redirects to ftp": (redirect("ftp://127.0.0.1/x"), "redirect"),
    "redirects to gopher": (redirect("gopher://127.0.0.1:1/x"), "redirect"),
    "redirects with a password": (redirect("http://user:word@127.0.0.1/x"), "redirect"),
    "redirects to no port": (redirect("http://127.0.0.1:99999/x"), "redirect"),
    "redirects to a strange host": (redirect("http://a%0d%0ab/x"), "redirect"),
    "redirects to a closed port": (redirect("http://127.0.0.1:1/x"), "network"),
    "redirects to no URL": (redirect("http://[/x"), "redirect"),
    "304": (status(304, {}, b""), "status"),
    "no HTTP": (raw(b"220 ftp ready\r\n"), "network"),
    "nothing": (raw(), "dropped"),
    "HTTP/9": (raw(b"HTTP/9.9 206 OK\r\n\r\n"), "network"),
    "many headers": (raw(b"HTTP/1.1 206 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"), "network"),
    "long header": (raw(b"HTTP/1.1 206 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"), "network"),
    "endless 100": (raw(*[b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000] * 5), "long"),
    "endless trailers": (
        raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n18\r\n" + DATA[:24] + b"\r\n0\r\n", *[b"X: yyyyyyyy\r\n" * 10_000] * 5), "long",
    ),
    "slow headers": (raw(*[b"HTTP/1.1 206 OK\r\n"] + [b"X: y\r\n"] * 200, pause=0.1), "timeout"),
    "slow body": (raw(HEAD + b"Content-Length: 24\r\n\r\n", *[b"x"] * 23, pause=0.2), "timeout"),
    "silent": (raw(b"", pause=HANG_S), "timeout"),
    "silent in the body": (raw(HEAD + b"Content-Length: 24\r\n\r\n", pause=HANG_S), "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_responses_are_refused(site: Site, name: str) -> None:
    site.pages["/x"], code = HOSTILE[name]
    with pytest.raises(RemoteError) as error, hang_guard():
        read_remote(f"{site.url}/x", limits=QUICK if code == "timeout" else None)
    assert error.value.code == code, str(error.value)
    assert len(str(error.value)) < 400


def test_redirect_from_https_to_http_is_refused() -> None:
    with pytest.raises(RemoteError, match="from https to http"):
        parse_url("https://127.0.0.1/x").redirected_to("http://127.0.0.1/x")
    assert (
        parse_url("http://127.0.0.1/x").redirected_to("https://127.0.0.1/y").url
        == "https://127.0.0.1/y"
    )
    assert parse_url("https://127.0.0.1/x/y").redirected_to("../z?q").url == "https://127.0.0.1/z?q"
    url = parse_url("https://127.0.0.1/x")._replace(is_trusted=True)
    assert [url.redirected_to(x).is_trusted for x in ("/y", "https://127.0.0.1:443/", "https://127.0.0.1:444/", "https://127.0.0.2/")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert (
        not url.redirected_to("https://127.0.0.2/").redirected_to("https://127.0.0.1/x").is_trusted
    )


def test_five_redirects_are_followed_and_six_are_not(site: Site) -> None:
    for i in range(1, 8):
        site.pages[f"/{i}"] = redirect(
            f"/{i - 1}", random.Random(i).choice([301, 302, 303, 307, 308])
        )
    site.pages["/0"] = file(DATA)
    assert len(read_remote(f"{site.url}/5").manifest.tensors) == 1
    with pytest.raises(RemoteError) as error:
        read_remote(f"{site.url}/6")
    assert error.value.code == "redirect"


@pytest.mark.parametrize("second", ["size", "tag", "bytes"])
def test_file_that_changes_during_reading_is_refused(site: Site, second: str) -> None:
    later = {
        "size": file(DATA + b"x"),
        "tag": file(DATA, '"two"'),
        "bytes": file(bytes(len(DATA))),
    }[second]

    def page(handler: Handler) -> None:
        (file(DATA) if len(site.seen) == 1 else later)(handler)

    site.pages["/x.safetensors"] = page
    with pytest.raises(LlamathError) as error:
        read_remote(f"{site.url}/x.safetensors")
    assert getattr(error.value, "code", "") == ("header_text" if second == "bytes" else "changed")


def test_a_dropped_connection_is_tried_once_more(site: Site) -> None:
    drops = 1

    def page(handler: Handler) -> None:
        nonlocal drops
        if drops:
            drops -= 1
            handler.close_connection = True
            return
        file(DATA)(handler)

    site.pages["/x"] = page
    assert len(read_remote(f"{site.url}/x").manifest.tensors) == 1
    drops, site.seen[:] = 2, []
    with pytest.raises(RemoteError) as error:
        read_remote(f"{site.url}/x")
    assert error.value.code == "dropped" and len(site.seen) == 2


def test_closed_idle_connection_is_reopened(site: Site) -> None:
    def page(handler: Handler) -> None:
        file(DATA)(handler)
        handler.close_connection = True

    site.pages["/x"] = page
    with HttpFile(f"{site.url}/x") as source:
        for at in range(100, 500, 100):
            source.read(at, 10)


def test_http_1_0_and_chunked_bodies_are_read(site: Site) -> None:
    def old(first: int, last: int, handler: Handler) -> None:
        span = f"Content-Range: bytes {first}-{last}/{len(DATA)}\r\n"
        raw(f"HTTP/1.0 206 OK\r\n{span}\r\n".encode(), DATA[first : last + 1])(handler)

    def chunked(first: int, last: int, handler: Handler) -> None:
        head = f"HTTP/1.1 206 OK\r\nContent-Range: bytes {first}-{last}/{len(DATA)}\r\nTransfer-Encoding: chunked\r\n\r\n"
        pieces = [DATA[x : min(x + 5, last + 1)] for x in range(first, last + 1, 5)]
        handler.wfile.write(
            head.encode() + b"".join(b"%x\r\n%b\r\n" % (len(x), x) for x in pieces) + b"0\r\n\r\n"
        )

    for response in (old, chunked):
        site.pages["/x"] = range_response(response)
        assert len(read_remote(f"{site.url}/x").manifest.tensors) == 1


def test_session_time_limit_is_enforced(site: Site) -> None:
    site.pages["/x"] = file(DATA)
    now = [0.0]
    with HttpFile(
        f"{site.url}/x", Session(limits=Limits(session=30), clock=lambda: now[0])
    ) as source:
        source.read(100, 10)
        now[0] = 31.0
        with pytest.raises(RemoteError) as error:
            source.read(200, 10)
    assert error.value.code == "timeout"


def test_first_of_several_shard_errors_is_raised(pair: Pair) -> None:
    hub = Hub(*pair, indexed(SHARDS))
    for number in (3, 7, 11):
        pair[1].pages[f"/model-{number:05}-of-00012.safetensors"] = status(200, {}, b"whole")
    with pytest.raises(RemoteError, match="model-00003-of"):
        read_remote("org/name")
    problems: list[FormatError] = []
    for number in (7, 3, 11):
        pair[1].pages[f"/model-{number:05}-of-00012.safetensors"] = file(b"no checkpoint " * number)
    manifest = read_remote("org/name", problems=problems).manifest
    assert len(manifest.files) == 9 and [
        "model-00003" in str(problems[0]),
        "model-00011" in str(problems[2]),
    ] == [True, True]
    assert hub.repo == "org/name"


def test_random_responses_raise_only_llamath_errors(site: Site) -> None:
    head = (
        HEAD
        + b"Content-Length: 24\r\nETag: x\r\nLocation: /y\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    good = head + b"18\r\n" + DATA[:24] + b"\r\n0\r\n\r\n"
    marks = [b"", b"\r\n", b"\0", b"-", b"9", b"\xff", b":", b" ", b"f"]
    chance = random.Random(7)
    for _ in range(250):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice([0, 1, 1, 9])] = chance.choice(marks)
        if chance.random() < 0.2:
            data[9:12] = chance.choice([b"302", b"200", b"416", b"100", b"999", b"000"])
        site.pages["/x"] = site.pages["/y"] = raw(bytes(data))
        with contextlib.suppress(LlamathError):
            read_remote(f"{site.url}/x", limits=QUICK)
