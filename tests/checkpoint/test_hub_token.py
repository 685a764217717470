"""The Hub's token is sent only to the Hub and never displayed; TLS is verified and never downgraded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from llamath.checkpoint.hub import read_config, read_remote
from llamath.utils.errors import LlamathError, RemoteError
from support.hub_server import (
    CONFIG,
    SHARDS,
    TOKEN,
    Hub,
    Site,
    authorized,
    error_text,
    file,
    indexed,
    redirect,
    safetensors,
    sites,
    status,
)
from support.hub_tls import make_certificate

pytestmark = pytest.mark.usefixtures("alone")
Pair = tuple[Site, Site]


# destinations of the token


def test_token_is_sent_only_to_the_endpoint(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, store = pair
    monkeypatch.setenv("HF_TOKEN", f"  {TOKEN}\n")
    Hub(endpoint, store, {"config.json": json.dumps(CONFIG).encode(), **indexed(SHARDS)})
    read_remote("org/name")
    assert (
        all(authorized(endpoint)) and endpoint.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
    )
    assert store.seen and not any(authorized(store))
    asked = len(endpoint.seen)
    read_remote(f"{store.url}/model-00001-of-00012.safetensors")
    assert not any(authorized(store)) and len(endpoint.seen) == asked


def test_token_is_not_restored_after_a_foreign_redirect(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, store = pair
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub = Hub(endpoint, store, {"model.safetensors": safetensors({"a": (2,)})})
    endpoint.pages[hub.resolve("model.safetensors")] = redirect(f"{store.url}/back")
    store.pages["/back"] = redirect(f"{endpoint.url}/private")
    endpoint.pages["/private"] = file(hub.files["model.safetensors"])
    read_remote("org/name")
    assert [("authorization" in x.headers) for x in endpoint.seen if x.path == "/private"] == [
        False,
        False,
    ]
    store.pages["/model.safetensors"] = redirect(f"{endpoint.url}/private")
    read_remote(f"{store.url}/model.safetensors")
    assert not any("authorization" in x.headers for x in endpoint.seen if x.path == "/private")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_other_host_name_of_one_machine_is_untrusted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    endpoint, store = pair
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub = Hub(endpoint, store, {"model.safetensors": safetensors({"a": (2,)})})
    endpoint.pages[hub.resolve("model.safetensors")] = redirect(
        f"http://{host}:{endpoint.port}/elsewhere"
    )
    endpoint.pages["/elsewhere"] = file(hub.files["model.safetensors"])
    read_remote("org/name")
    assert ["authorization" in x.headers for x in endpoint.seen if x.path == "/elsewhere"] == [
        host == "127.0.0.1"
    ] * 2


def test_token_is_not_sent_over_plain_http(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("http_proxy", site.url.replace("http://", "http://user:pass%40word@"))
    site.pages["http://hub.invalid/api/models/org/name/revision/main"] = status(401)
    with pytest.raises(RemoteError) as error:
        read_remote("org/name")
    assert error.value.code == "unauthorized" and "HF_TOKEN" in error.value.hint
    assert [x.headers.get("authorization") for x in site.seen] == [None]
    assert (
        site.seen[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNzQHdvcmQ="
        and site.seen[0].headers["host"] == "hub.invalid"
    )


def test_implicit_token_can_be_disabled(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    Hub(*pair, {"model.safetensors": safetensors({"a": (2,)})})
    read_remote("org/name")
    assert not any(authorized(pair[0]))


def test_stored_token_comes_from_huggingface_hub(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    (tmp_path / "token").write_text("hf_stored\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: TOKEN)
    Hub(*pair, {"model.safetensors": safetensors({"a": (2,)})})
    read_remote("org/name")
    assert all(authorized(pair[0]))

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "huggingface_hub", None)
        pair[0].seen.clear()
        read_remote("org/name")
        assert {x.headers["authorization"] for x in pair[0].seen} == {"Bearer hf_stored"}, (
            "without the extra the file is read"
        )

    def broken() -> str:
        raise RuntimeError(f"no luck with {TOKEN}")

    monkeypatch.setattr(huggingface_hub, "get_token", broken)
    with pytest.raises(RemoteError) as error:
        read_remote("org/name")
    assert error.value.code == "token" and TOKEN not in error_text(error.value)


@pytest.mark.parametrize(
    "token", [f"{TOKEN}\r\nX-Injected: 1", f"{TOKEN} x", f"{TOKEN}ü", f"{TOKEN}\0"[:-1] + "\x7f"]
)
def test_malformed_token_is_neither_sent_nor_shown(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(RemoteError) as error:
        read_remote("org/name")
    assert error.value.code == "token" and TOKEN not in error_text(error.value) and not pair[0].seen


@pytest.mark.parametrize("code", [400, 401, 403, 404, 418, 429, 500, 503])
def test_no_error_repeats_the_token(pair: Pair, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub = Hub(*pair, {"model.safetensors": safetensors({"a": (2,)})})
    echo = {
        "X-Error-Message": f"bad token {TOKEN}",
        "X-Error-Code": TOKEN,
        "WWW-Authenticate": TOKEN,
    }
    for page in (hub.api, hub.resolve("model.safetensors")):
        pair[0].pages[page] = status(code, echo, TOKEN.encode())
        with pytest.raises(LlamathError) as error:
            read_remote("org/name")
        assert TOKEN not in error_text(error.value)
        hub = Hub(*pair, hub.files)


def test_signature_of_a_signed_url_is_not_shown(site: Site) -> None:
    site.pages["/a/model.safetensors"] = file(safetensors({"a": (2,)}))
    manifest = read_remote(f"{site.url}/a/model.safetensors?X-Signature=sealed").manifest
    assert site.seen[0].path.endswith("?X-Signature=sealed")
    assert manifest.files[0].name == f"{site.url}/a/model.safetensors"
    for page in (
        status(500),
        redirect(f"{site.url}/b?X-Signature=sealed"),
        redirect("ftp://user:sealed@x/?sealed"),
    ):
        site.pages["/a/model.safetensors"] = page
        with pytest.raises(LlamathError) as error:
            read_remote(f"{site.url}/a/model.safetensors?X-Signature=sealed")
        assert "sealed" not in error_text(error.value)


def test_addresses_with_passwords_are_refused(site: Site) -> None:
    for url in (
        f"http://user:sealed@127.0.0.1:{site.port}/x",
        f"http://sealed@127.0.0.1:{site.port}/x",
    ):
        with pytest.raises(RemoteError) as error:
            read_remote(url)
        assert error.value.code == "url" and "sealed" not in error_text(error.value)
    assert not site.seen


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_tls_is_verified(certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with sites(2, certificate) as (endpoint, store):
        Hub(endpoint, store, {"model.safetensors": safetensors({"a": (2,)})})
        monkeypatch.setenv("HF_ENDPOINT", endpoint.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        with pytest.raises(RemoteError, match="certificate verify failed") as error:
            read_remote("org/name")
        assert error.value.code == "network" and not endpoint.seen
        monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
        assert len(read_remote("org/name").manifest.tensors) == 1
        assert all(authorized(endpoint)) and not any(authorized(store))
        monkeypatch.setenv("HF_ENDPOINT", endpoint.url.replace("127.0.0.1", "localhost"))
        with pytest.raises(RemoteError, match="certificate verify failed"):
            read_remote("org/name")


def test_https_is_not_downgraded(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    with sites(1, certificate) as (safe,), sites(1) as (open_,):
        safe.pages["/x"] = redirect(f"{open_.url}/x")
        open_.pages["/x"] = file(safetensors({"a": (2,)}))
        with pytest.raises(RemoteError, match="from https to http"):
            read_remote(f"{safe.url}/x")
        assert not open_.seen
        open_.pages["/x"], safe.pages["/x"] = redirect(f"{safe.url}/x"), open_.pages["/x"]
        assert len(read_remote(f"{open_.url}/x").manifest.tensors) == 1


def test_proxy_sees_only_the_host(
    site: Site, certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("https_proxy", site.url)
    with sites(1, certificate) as (endpoint,):
        Hub(endpoint, endpoint, {"model.json": b"", "config.json": json.dumps(CONFIG).encode()})
        site.tunnel = endpoint.port
        assert read_config("hf://org/name")[0] == CONFIG
        assert all(authorized(endpoint)) and len(endpoint.seen) == 3
    assert [x.path for x in site.seen] == ["hub.invalid:443"] and TOKEN not in str(site.seen)
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(RemoteError) as error:
        read_config("hf://org/name")
    assert error.value.code == "proxy"
