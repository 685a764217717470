"""`llamath serve`: only whoever has the launch's token, says the right host and comes from no other site is answered, and nothing falls over."""

from __future__ import annotations

import http.client
import random
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.catalog import slugs
from llamath.cli import cli
from llamath.errors import LlamathError, MissingExtra
from llamath.web.page import page
from llamath.web.server import listening, loopback, preset, serve

uvicorn = pytest.importorskip("uvicorn")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Place:
    """A server that runs in a thread, and what it said of its address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.port = int(address.split(":")[2].split("/")[0])
        self.path = "/" + address.split("/", 3)[3]

    def ask(
        self, path: str | None = None, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        said = {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        wire.request(method, self.path if path is None else path, body=body, headers=said)
        answer = wire.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        wire.close()
        return found


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    said: list[str] = []
    servers: list[Any] = []
    run = uvicorn.Server.run

    def noted(self: Any, sockets: Any = None) -> None:
        servers.append(self)
        run(self, sockets)

    uvicorn.Server.run = noted
    thread = threading.Thread(target=serve, args=([llamath.load("gpt2")], "127.0.0.1", 0, said.append), daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not (servers and servers[0].started) and time.monotonic() < until:
        time.sleep(0.02)
    yield Place(said[0])
    servers[0].should_exit = True
    thread.join(20)
    uvicorn.Server.run = run


def test_the_page_is_the_one_that_is_exported(place: Place) -> None:
    status, headers, text = place.ask()
    assert status == 200 and text == page([llamath.load("gpt2")])
    assert (
        headers["cache-control"] == "no-store"
        and headers["x-content-type-options"] == "nosniff"
        and headers["referrer-policy"] == "no-referrer"
    )
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert not {x for x in headers if x.startswith("access-control") or x in ("set-cookie", "server")}


def test_presets_by_slug(place: Place) -> None:
    assert place.ask(f"{place.path}model/llama-3-8b")[2] == page([llamath.load("llama-3-8b")])
    assert "DeepSeek" in place.ask(f"{place.path}models/llama-3-8b/deepseek-v2-lite")[2]


def test_a_preset_is_the_preset_also_beside_a_file_of_its_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert preset("gpt2").parameters.total == 124_439_808
    monkeypatch.chdir("/")
    for slug in ("llama-3-8b", "deepseek-v3", "gpt2"):
        found, same = preset(slug), llamath.load(slug)
        assert (found.name, found.source, found.notes, found.tree) == (same.name, same.source, same.notes, same.tree)
    assert "gpt2" in slugs()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "..%2f..%2fREADME.md",
        "http://127.0.0.1/",
        "https:%2F%2Fx.invalid%2F",
        "config.json",
        "-",
        "LLAMA-3-8B",
        "llama-3-8b%00",
        "meta-llama%2FLlama-3.1-8B",
    ],
)
def test_no_path_and_no_address_is_taken(place: Place, name: str) -> None:
    assert place.ask(f"{place.path}model/{name}")[0] == 404
    assert place.ask(f"{place.path}?model={name}")[2] == place.ask()[2]


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1", "127.0.0.1:1", "localhost", "x@127.0.0.1", "[::1]:1", ""])
def test_another_host_is_refused(place: Place, host: str) -> None:
    assert place.ask(Host=host)[0] in (400, 421)


def test_every_name_of_this_machine_is_its_own(place: Place) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert place.ask(Host=f"{name}:{place.port}")[0] == 200


def test_another_origin_is_refused(place: Place) -> None:
    for origin in ("http://evil.test", "null", "https://127.0.0.1", f"http://localhost:{place.port}"):
        assert place.ask(Origin=origin)[0] == 403
    assert place.ask(Origin=f"http://127.0.0.1:{place.port}")[0] == 200
    assert place.ask(Sec_Fetch_Site="cross-site")[0] == 403 and place.ask(Sec_Fetch_Site="same-site")[0] == 403


def test_without_the_token_there_is_nothing(place: Place) -> None:
    other = f"{place.path[:-2]}{'y' if place.path[-2] == 'x' else 'x'}/"
    for path in ("/", "/model/gpt2", "/x/", other, place.path.upper(), place.path.rstrip("/"), f"/{place.path}"):
        status, _, text = place.ask(path)
        assert status == 404 and "GPT" not in text


def test_only_reading_and_no_body(place: Place) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        assert place.ask(method=method)[0] in (400, 405)
    assert place.ask(method="GET", body=b"x" * 1000)[0] == 413
    assert place.ask(method="HEAD")[0] in (200, 405)
    assert place.ask("/" + "a" * 100_000)[0] in (400, 404, 414, 431)


def test_strange_requests_and_no_failure(place: Place) -> None:
    draw = random.Random(5)
    alphabet = [*"abz019/.%-_~?#&=;:@!$'()*+,", "%00", "%2f", "%ff", "..", "models", "model", "gpt2", "%F0%9F%A6%99", place.path, "%0d%0a"]
    wire = http.client.HTTPConnection("127.0.0.1", place.port, timeout=60)
    statuses: dict[int, int] = {}
    for _ in range(2_000):
        path = ("/" if draw.random() < 0.3 else place.path) + "".join(draw.choices(alphabet, k=draw.randrange(8))).replace("#", "")
        wire.request(draw.choice(("GET", "GET", "HEAD", "POST", "FOO")), path, headers={"Host": f"127.0.0.1:{place.port}"})
        answer = wire.getresponse()
        answer.read()
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if answer.will_close:
            wire.close()
    wire.close()
    assert max(statuses) < 500 and 404 in statuses and 200 in statuses, statuses


def test_broken_requests_and_no_failure(place: Place) -> None:
    draw = random.Random(6)
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", place.port), timeout=20) as wire:
            wire.sendall(b"GET " + draw.randbytes(draw.randrange(200)) + b"\r\n\r\n")
            wire.settimeout(20)
            assert not wire.recv(100).startswith(b"HTTP/1.1 5")
    assert place.ask()[0] == 200


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_rebound_name_sees_nothing(place: Place) -> None:
    """A stranger's name that has come to mean this machine: the browser asks, and says whom it means."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--host-resolver-rules=MAP evil.test 127.0.0.1"])
        tab = browser.new_page()
        answer = tab.goto(f"http://evil.test:{place.port}{place.path}")
        assert answer is not None and answer.status == 421 and "GPT" not in tab.content()
        read = tab.evaluate("url => fetch(url).then(x => x.text(), () => 'refused')", place.address)
        assert read == "refused"
        good = browser.new_page()
        assert good.goto(place.address).status == 200 and "124,439,808" in good.text_content("main")
        browser.close()


def test_each_launch_has_a_token_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: [x.close() for x in sockets])
    said: list[str] = []
    for _ in range(2):
        serve([], "127.0.0.1", 0, said.append)
    assert said[0].split("/")[3] != said[1].split("/")[3] and all(len(x.split("/")[3]) == 32 for x in said)


def test_without_the_extra_the_hint_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra) as found:
        serve([], "127.0.0.1", 0, print)
    assert "llamath[web]" in found.value.hint


def test_what_cannot_be_listened_on_is_a_sentence() -> None:
    with listening("127.0.0.1", 0) as held, pytest.raises(LlamathError):
        listening("127.0.0.1", held.getsockname()[1])
    with pytest.raises(LlamathError):
        listening("x.invalid", 0)
    assert loopback("127.0.0.2") and loopback("::1") and not loopback("0.0.0.0")
    assert CliRunner().invoke(cli, ["serve", "a", "b", "c"]).exit_code == 2
