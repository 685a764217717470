"""`llamath serve`: only requests with the token, the right host and the same origin are answered, and no request causes a failure."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import random
import socket
import sys
import webbrowser
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

import llamath
from llamath.catalog import slugs
from llamath.cli import cli
from llamath.cli.serve import is_interactive, open_browser
from llamath.utils.errors import LlamathError, MissingExtra
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.application import AccessPolicy
from llamath.web.server.model_ids import load_preset
from llamath.web.server.page_html import page_from_data
from llamath.web.server.server import (
    ServerAddress,
    access_policy,
    is_loopback,
    is_unspecified,
    listen,
    serve,
)
from support.browser_page import UNTIL_WHOLE, new_context, page_data
from support.chromium import CHROMIUM, NO_CHROMIUM, launch_chromium
from support.serving import Place, served

uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with served([llamath.load("gpt2")]) as found:
        yield found


def exported_page(up: str, *slugs: str, ids: tuple[str, ...] = ()) -> str:
    served_as = {"served": {"up": up, "ids": list(ids or slugs)}}
    return page_from_data(
        build_page_data([llamath.load(x) for x in slugs]) | served_as, connects=True
    )


def test_served_page_equals_exported_page_except_for_links(place: Place) -> None:
    status, headers, text = place.ask()
    assert status == 200 and text == exported_page("", "gpt2", ids=("~1",))
    assert (
        headers["cache-control"] == "no-store"
        and headers["x-content-type-options"] == "nosniff"
        and headers["referrer-policy"] == "no-referrer"
    )
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert not {
        x for x in headers if x.startswith("access-control") or x in ("set-cookie", "server")
    }


def test_presets_are_named_by_slug_and_models_by_number(place: Place) -> None:
    assert place.ask(f"{place.path}model/gpt2-medium")[2] == exported_page("../", "gpt2-medium")
    assert "DistilGPT2" in place.ask(f"{place.path}models/gpt2-medium/distilgpt2")[2]
    assert "GPT-2" in place.ask(f"{place.path}models/gpt2-medium/~1")[2]


def test_preset_wins_over_a_folder_of_its_name(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_preset("gpt2").parameters.total == 124_439_808
    monkeypatch.chdir("/")
    for slug in ("llama-3-8b", "deepseek-v3", "gpt2"):
        found, same = load_preset(slug), llamath.load(slug)
        assert (found.name, found.source, found.notes, found.tree) == (
            same.name,
            same.source,
            same.notes,
            same.tree,
        )
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
        "~0",
        "~2",
        "~01",
        "hub:meta-llama:Llama-3.1-8B",
    ],
)
def test_paths_and_addresses_are_not_accepted(place: Place, name: str) -> None:
    assert place.ask(f"{place.path}model/{name}")[0] == 404
    first = place.ask()[2]
    assert place.ask(f"{place.path}?model={name}")[2] == first
    own = page_data(place.ask(f"{place.path}model/~1")[2])
    assert own["served"] == {"up": "../", "ids": ["~1"]} and page_data(first) == own | {
        "served": {"up": "", "ids": ["~1"]}
    }


@pytest.mark.parametrize(
    "host", ["evil.test", "127.0.0.1", "127.0.0.1:1", "localhost", "x@127.0.0.1", "[::1]:1", ""]
)
def test_other_host_headers_are_refused(place: Place, host: str) -> None:
    assert place.ask(Host=host)[0] in (400, 421)


def test_every_name_of_this_machine_is_accepted(place: Place) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert place.ask(Host=f"{name}:{place.port}")[0] == 200


def test_other_origins_are_refused(place: Place) -> None:
    for origin in (
        "http://evil.test",
        "null",
        "https://127.0.0.1",
        f"http://localhost:{place.port}",
    ):
        assert place.ask(Origin=origin)[0] == 403
    assert place.ask(Origin=f"http://127.0.0.1:{place.port}")[0] == 200
    assert (
        place.ask(Sec_Fetch_Site="cross-site")[0] == 403
        and place.ask(Sec_Fetch_Site="same-site")[0] == 403
    )


def test_requests_without_token_are_not_found(place: Place) -> None:
    other = f"{place.path[:-2]}{'y' if place.path[-2] == 'x' else 'x'}/"
    for path in (
        "/",
        "/model/gpt2",
        "/x/",
        other,
        place.path.upper(),
        place.path.rstrip("/"),
        f"/{place.path}",
    ):
        status, _, text = place.ask(path)
        assert status == 404 and "GPT" not in text


def test_only_get_and_head_without_body_are_accepted(place: Place) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        assert place.ask(method=method)[0] in (400, 405)
    assert place.ask(method="GET", body=b"x" * 1000)[0] == 413
    assert place.ask(method="HEAD")[0] in (200, 405)
    assert place.ask("/" + "a" * 100_000)[0] in (400, 404, 414, 431)


def test_random_requests_cause_no_server_error(place: Place) -> None:
    rng = random.Random(5)
    alphabet = [
        *"abz019/.%-_~?#&=;:@!$'()*+,",
        "%00",
        "%2f",
        "%ff",
        "..",
        "models",
        "model",
        "gpt2",
        "%F0%9F%A6%99",
        place.path,
        "%0d%0a",
    ]
    wire = http.client.HTTPConnection("127.0.0.1", place.port, timeout=300)
    statuses: dict[int, int] = {}
    for _ in range(2_000):
        path = ("/" if rng.random() < 0.3 else place.path) + "".join(
            rng.choices(alphabet, k=rng.randrange(8))
        ).replace("#", "")
        wire.request(
            rng.choice(("GET", "GET", "HEAD", "POST", "FOO")),
            path,
            headers={"Host": f"127.0.0.1:{place.port}"},
        )
        answer = wire.getresponse()
        answer.read()
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if answer.will_close:
            wire.close()
    wire.close()
    assert max(statuses) < 500 and 404 in statuses and 200 in statuses, statuses


def test_broken_requests_cause_no_server_error(place: Place) -> None:
    rng = random.Random(6)
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", place.port), timeout=300) as wire:
            wire.sendall(b"GET " + rng.randbytes(rng.randrange(200)) + b"\r\n\r\n")
            assert not wire.recv(100).startswith(b"HTTP/1.1 5")
    assert place.ask()[0] == 200


@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_dns_rebinding_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign page whose DNS name resolves to this machine sends requests with its own and this host name, and in a frame."""
    from playwright.sync_api import sync_playwright

    site = f"http://evil.test:{place.port}"
    asks = "url => fetch(url).then(async x => `${x.status} ${await x.text()}`, () => 'unread')"
    framed = """url => new Promise(done => {
      const frame = document.createElement('iframe');
      frame.onload = () => { try { done(frame.contentDocument.body.textContent) } catch { done('unread') } };
      frame.src = url;
      document.body.append(frame);
    })"""
    with sync_playwright() as driver:
        browser = launch_chromium(driver, "--host-resolver-rules=MAP evil.test 127.0.0.1")
        tab = (
            new_context(browser, bypass_csp=True).new_page()
        )  # the answer that refuses plays the stranger's page, without what it forbids itself
        assert tab.goto(f"{site}/attack").status == 421
        assert tab.evaluate(asks, f"{site}{place.path}") == "421 refused"
        assert tab.evaluate(asks, place.address) == "unread"
        assert (
            "GPT" not in tab.evaluate(framed, f"{site}{place.path}")
            and tab.evaluate(framed, place.address) == "unread"
        )
        assert tab.goto(f"{site}{place.path}").status == 421
        good = new_context(browser).new_page()
        assert good.goto(place.address).status == 200
        good.evaluate(UNTIL_WHOLE)
        assert "124,439,808" in good.text_content("main")
        with monkeypatch.context() as patch:
            patch.setattr(AccessPolicy, "is_known_host", lambda *_: True)
            assert tab.evaluate(asks, f"{site}{place.path}").startswith("200 "), (
                "without the check the attack succeeds"
            )
        browser.close()


def test_each_launch_has_a_new_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: [x.close() for x in sockets])
    variables: list[ServerAddress] = []
    for _ in range(2):
        serve([], "127.0.0.1", 0, variables.append)
    secrets = [y.split("/")[3] for x in variables for y in (x.address, x.one_time_address)]
    assert len(set(secrets)) == 4 and {len(x) for x in secrets} == {32}


def test_browser_address_works_once(place: Place) -> None:
    path = "/" + place.once.rsplit("/", 1)[1]
    assert (
        place.ask(path, Host="evil.test")[0] == 421
        and place.ask(path, Origin="http://evil.test")[0] == 403
    )
    assert place.ask(path, method="POST")[0] == 405 and place.ask(f"{path}x")[0] == 404
    status, headers, text = place.ask(path)
    assert status == 303 and headers["location"] == place.path and not text
    assert place.ask(path)[0] == 404


def test_numeric_addresses_are_accepted_and_foreign_names_refused() -> None:
    door = access_policy("0.0.0.0", 8000)
    name = socket.gethostname().lower()
    for host in (
        "127.0.0.1:8000",
        "192.0.2.7:8000",
        "[2001:db8::1]:8000",
        "localhost:8000",
        f"{name}:8000",
    ):
        assert door.is_known_host(host), host
    for host in (
        "192.0.2.7",
        "192.0.2.7:80",
        "evil.test:8000",
        "192.0.2.7.evil.test:8000",
        "0x7f000001.evil.test:8000",
        "[]:8000",
        ":8000",
        "",
    ):
        assert not door.is_known_host(host), host
    one = access_policy("192.0.2.7", 8000)
    assert (
        one.is_known_host("192.0.2.7:8000")
        and not one.is_known_host("127.0.0.1:8000")
        and not one.is_known_host("192.0.2.8:8000")
    )
    assert len({door.token, door.one_time_path, one.token, one.one_time_path}) == 4
    assert (
        is_unspecified("::") and not is_unspecified("127.0.0.1") and not is_unspecified("localhost")
    )


@pytest.mark.parametrize(
    ("terminal", "variables", "opens"),
    [
        (True, {"DISPLAY": ":0"}, True),
        (True, {"WAYLAND_DISPLAY": "w"}, True),
        (True, {"DISPLAY": ":0", "CI": "1"}, False),
        (False, {"DISPLAY": ":0"}, False),
        (True, {}, False),
        (True, {"SSH_CONNECTION": "a b"}, False),
    ],
)
def test_browser_is_opened_only_in_interactive_sessions(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, variables: dict[str, str], opens: bool
) -> None:
    for name in ("CI", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, SimpleNamespace(isatty=lambda: terminal))
    assert is_interactive() is opens


@pytest.mark.parametrize(
    ("option", "screen", "opened"), [(None, True, 1), ("--no-browser", True, 0), (None, False, 0)]
)
def test_one_time_address_is_opened_and_address_is_printed(
    monkeypatch: pytest.MonkeyPatch, option: str | None, screen: bool, opened: int
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: [x.close() for x in sockets])
    monkeypatch.setattr("llamath.cli.serve.open_browser", seen.append)
    monkeypatch.setattr("llamath.cli.serve.is_interactive", lambda: screen)
    done = CliRunner().invoke(cli, ["serve", "gpt2", "gpt2", "gpt2", *([option] if option else [])])
    assert (
        done.exit_code == 0 and done.stdout.startswith("http://127.0.0.1:") and len(seen) == opened
    )
    assert not any(x in done.output for x in seen)


def test_function_serves_as_the_command_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        sockets[0].close()
        raise KeyboardInterrupt

    seen: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "run", interrupted)
    monkeypatch.setattr("llamath.cli.serve.open_browser", seen.append)
    llamath.serve("gpt2", llamath.load("llama-3-8b"), browser=True)
    assert capsys.readouterr().out.startswith("http://127.0.0.1:") and len(seen) == 1
    defaults = {x: y.default for x, y in inspect.signature(llamath.serve).parameters.items()}
    command = cli.get_command(click.Context(cli), "serve")
    assert command is not None
    options = {x.name: x.get_default(click.Context(command)) for x in command.params}
    port = next(x.type for x in command.params if x.name == "port")
    assert port(options["port"]) == (defaults["host"], defaults["port"])
    assert port("0.0.0.0:80") == ("0.0.0.0", 80) and port("[::1]:8080") == ("::1", 8080)
    assert options["browser"] is defaults["browser"]
    with pytest.raises(LlamathError, match="port should be from 0 to 65,535"):
        llamath.serve("gpt2", port=70_000)


def test_function_refuses_a_running_event_loop() -> None:
    async def notebook() -> None:
        llamath.serve("gpt2")

    with pytest.raises(LlamathError, match="running event loop"):
        asyncio.run(notebook())


def test_terminal_browsers_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(webbrowser, "open", seen.append)
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("lynx"))
    open_browser("x")
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.BackgroundBrowser("firefox"))
    open_browser("y")
    assert Place.wait_for(lambda: bool(seen)) and seen == ["y"]


def test_missing_extra_is_named_in_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra) as found:
        serve([], "127.0.0.1", 0, print)
    assert "llamath[web]" in found.value.hint


def test_unusable_address_is_a_clear_error() -> None:
    with listen("127.0.0.1", 0) as listener, pytest.raises(LlamathError):
        listen("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(LlamathError):
        listen("x.invalid", 0)
    assert is_loopback("127.0.0.2") and is_loopback("::1") and not is_loopback("0.0.0.0")
    assert CliRunner().invoke(cli, ["serve", "-", "-"]).exit_code == 2
