"""Which network addresses are requested: those that the user names, and public ones, which are checked and then used."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from llamath.checkpoint.hub import Limits, addresses, read_config, read_remote
from llamath.checkpoint.hub.addresses import is_public
from llamath.checkpoint.hub.http_client import Session
from llamath.checkpoint.hub.http_file import HttpFile
from llamath.checkpoint.hub.urls import parse_url
from llamath.utils.access import Access, only
from llamath.utils.errors import RemoteError
from support.hub_server import CONFIG, Hub, Site, file, redirect, safetensors, sites, status
from support.hub_tls import make_certificate

WEIGHTS = safetensors({"a": (2, 2)}, {"a": "b" * 3000})
PRIVATE = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.254 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1 172.31.255.1
    192.0.0.1 192.0.0.170 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1
    255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 ::ffff:0:7f00:1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe
    64:ff9b:1::808:808 100::1 2001::1 2001:0:53aa:64c::1 2001:10::1 2001:db8::1 2002:7f00:1:: 2002:808:808::1 3fff::1 5f00::1 fc00::1
    fd00:ec2::254 fe80::1 fe80::1%eth0 febf::1 fec0::1 feff::1 ff02::1 ff0e::1 4000::1
""".split()
PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.1.1.1 128.0.0.1 169.253.1.1 172.15.1.1 172.32.0.1 192.0.1.1
    192.167.1.1 192.169.0.1 198.17.1.1 198.20.0.1 223.255.255.255 2001:200::1 2606:4700:4700::1111 2a00:1450:4001:82f::200e 2620:fe::fe
    64:ff9b::808:808
""".split()


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ask for everything, without the user's settings; all that is requested is on loopback."""
    for name in (
        "HF_TOKEN",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "HF_ENDPOINT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Host name → the addresses that each further question for it gets; the last one stays."""
    answers: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def resolver(host: str, port: int, *rest: Any, **more: Any) -> Any:
        if host in answers:
            host = answers[host].pop(0) if len(answers[host]) > 1 else answers[host][0]
        return real(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    return answers


@pytest.fixture
def public_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take 127.0.0.1, where the servers of the tests are, for a public address, and 127.0.0.2 for a private one."""
    monkeypatch.setattr(addresses, "is_public", lambda text: text == "127.0.0.1" or is_public(text))


@pytest.fixture
def pair() -> Iterator[tuple[Site, Site]]:
    with sites(2) as (first, second):
        yield first, second


def test_private_addresses_are_told_from_public_ones() -> None:
    assert [x for x in PRIVATE if is_public(x)] == [] and [
        x for x in PUBLIC if not is_public(x)
    ] == []


def test_addresses_in_odd_forms_are_refused_everywhere() -> None:
    for host in "2130706433 0x7f000001 0x7f.1 127.1 0177.0.0.1 127.0.0.1. 010.0.0.1 1.2.3 1.2.3.4.5 0x 017700000001 a.0x1 256.1.1".split():
        with pytest.raises(RemoteError, match="four decimal numbers"):
            parse_url(f"http://{host}/x")
        with pytest.raises(RemoteError, match="four decimal numbers"):
            parse_url("http://1.1.1.1/").redirected_to(f"http://{host}/x")
    for host in ("127.0.0.1", "8.8.8.8", "a.b", "1.a", "[::1]", "hub-1.example", "0x7f.example"):
        assert parse_url(f"http://{host}/x").host == host.strip("[]")


def test_a_public_host_redirects_to_no_private_one(
    pair: tuple[Site, Site], names: dict[str, list[str]], public_loopback: None
) -> None:
    outer, inner = pair
    names |= {
        "public.example": ["127.0.0.1"],
        "inner.example": ["127.0.0.2"],
        "v6.example": ["::1"],
    }
    outer.pages["/b"] = redirect(f"http://inner.example:{inner.port}/x")
    hops = (
        f"http://127.0.0.2:{inner.port}/x",
        f"http://inner.example:{inner.port}/x",
        f"http://v6.example:{inner.port}/x",
        "/b",
    )
    for code in (301, 302, 303, 307, 308):
        for target in hops:
            outer.pages["/a"] = redirect(target, code)
            with pytest.raises(RemoteError) as error:
                read_remote(f"http://public.example:{outer.port}/a")
            assert error.value.code == "private"
    assert not inner.seen and all(
        x.headers["host"] == f"public.example:{outer.port}" for x in outer.seen
    )
    # what the user names is requested wherever it is, and may lead on from there
    outer.pages["/a"] = redirect(f"{inner.url}/x")
    inner.pages["/x"] = file(WEIGHTS)
    assert len(read_remote(f"http://public.example:{outer.port}/a").manifest.tensors) == 1


def test_a_named_private_host_may_redirect_to_another(pair: tuple[Site, Site]) -> None:
    first, second = pair
    first.pages["/a"], second.pages["/x"] = redirect(f"{second.url}/x"), file(WEIGHTS)
    assert (
        len(read_remote(f"{first.url}/a").manifest.tensors) == 1
    )  # with several requests to the second
    assert len(second.seen) > 1


def test_only_the_endpoint_may_be_private_for_agents(
    pair: tuple[Site, Site], names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, other = pair
    monkeypatch.setenv("HF_ENDPOINT", endpoint.url)
    names |= {"metadata.internal": ["169.254.169.254"], "half.example": ["8.8.8.8"]}
    for site in pair:
        site.pages["/x"] = file(WEIGHTS)
    endpoint.pages["/away"] = redirect(f"{other.url}/x")
    Hub(endpoint, other, {"model.safetensors": WEIGHTS})
    with only(Access(folders=(), hub=True, urls=True)):
        assert len(read_remote(f"{endpoint.url}/x").manifest.tensors) == 1
        refused = [
            f"{other.url}/x",
            f"{endpoint.url}/away",
            "org/name",
            "http://metadata.internal/x",
            "http://[::1]:9/x",
            "http://10.0.0.1/x",
        ]
        for text in (
            *refused,
            f"http://localhost:{other.port}/x",
            f"http://[::ffff:127.0.0.1]:{other.port}/x",
        ):
            with pytest.raises(RemoteError) as error:
                read_remote(text)
            assert error.value.code == "private", text
    assert not other.seen
    assert (
        len(read_remote("org/name").manifest.tensors) == 1
    )  # on the command line, the endpoint leads to its store


def test_one_private_address_of_several_is_refused(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (x, 80)) for x in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: mixed)
    with pytest.raises(RemoteError) as error:
        HttpFile("http://mixed.example/x", Session(limits=Limits(public_only=True)))
    assert error.value.code == "private"


def test_the_checked_address_is_the_one_used(
    pair: tuple[Site, Site], names: dict[str, list[str]], public_loopback: None
) -> None:
    site, _ = pair
    site.pages["/x"] = file(WEIGHTS)
    asked: list[str] = []
    names["rebinding.example"] = Answers(["127.0.0.1", "127.0.0.2"], asked)
    with closing(Session(limits=Limits(public_only=True))) as session:
        opened = HttpFile(f"http://rebinding.example:{site.port}/x", session)
        assert (
            asked == ["127.0.0.1"]
            and opened.read(0, 2000) == WEIGHTS[:2000]
            and asked == ["127.0.0.1"]
        )
        session.close()
        with pytest.raises(RemoteError) as error:  # a new connection is checked anew
            opened.read(0, 2001)
    assert error.value.code == "private" and asked == ["127.0.0.1", "127.0.0.2"]


class Answers(list[str]):
    """The addresses of a name, and a record of those that were given out."""

    def __init__(self, values: list[str], record: list[str]) -> None:
        super().__init__(values)
        self.record = record

    def pop(self, at: Any = -1) -> str:
        self.record.append(found := super().pop(at))
        return found

    def __getitem__(self, at: Any) -> Any:
        self.record.append(found := super().__getitem__(at))
        return found


def test_tls_and_host_keep_the_name(
    names: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    names |= {"hub.invalid": ["127.0.0.1"], "other.invalid": ["127.0.0.1"]}
    with sites(1, certificate) as (site,):
        site.pages["/x"] = file(WEIGHTS)
        assert len(read_remote(f"https://hub.invalid:{site.port}/x").manifest.tensors) == 1
        assert {x.headers["host"] for x in site.seen} == {f"hub.invalid:{site.port}"}
        with pytest.raises(RemoteError, match="certificate verify failed"):
            read_remote(f"https://other.invalid:{site.port}/x")


def test_private_addresses_are_refused_through_a_proxy(
    pair: tuple[Site, Site], names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, _ = pair
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    names |= {"inner.example": ["10.0.0.1"], "outer.example": ["8.8.8.8"]}
    start = "http://outer.example/a"
    proxy.pages[start] = redirect("http://169.254.169.254/x")
    with pytest.raises(RemoteError) as error:
        read_remote(start)
    assert error.value.code == "private"
    with closing(Session(limits=Limits(public_only=True))) as strict:
        for name, code in (
            ("http://inner.example/x", "private"),
            ("http://unknown.invalid/x", "network"),
        ):
            with pytest.raises(RemoteError) as error:
                HttpFile(name, strict)
            assert error.value.code == code
        assert [x.path for x in proxy.seen] == [start]
        proxy.pages["http://outer.example/x"] = file(WEIGHTS)
        assert HttpFile("http://outer.example/x", strict).size == len(WEIGHTS)


def test_the_served_page_reads_public_hosts_only(
    pair: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    from llamath.web.server.model_ids import load_hub_model
    from llamath.web.server.work_slots import PageError

    endpoint, other = pair
    monkeypatch.setenv("HF_ENDPOINT", endpoint.url)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    config = json.dumps(CONFIG).encode()
    hub = Hub(endpoint, other, {"config.json": config})
    assert load_hub_model("hub:org:name").parameters.total
    endpoint.pages[hub.resolve("config.json")] = redirect(f"{other.url}/config.json")
    other.pages["/config.json"] = status(200, {}, config)
    with pytest.raises(PageError, match="private address"):
        load_hub_model("hub:org:name")
    assert not other.seen and read_config("org/name")[0] == CONFIG
