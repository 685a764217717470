"""`llamath serve --allow hub`: only configs are read from the Hub, within limits, and nothing without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import llamath
from support.hub_server import CONFIG, QUICK, Hub, Site, raw, safetensors, sites, status
from support.serving import HANG_S, Place, served

pytest.importorskip("uvicorn")
PAYLOAD = "</script><script>pwned()</script>"


@pytest.fixture(scope="module")
def hub() -> Iterator[tuple[Site, Place]]:
    with pytest.MonkeyPatch.context() as patch, sites(2) as (endpoint, store):
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        patch.setenv("HF_ENDPOINT", endpoint.url)
        patch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
        files = {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors": safetensors({"a": (2, 2)}),
        }
        Hub(endpoint, store, files)
        with served([llamath.load("gpt2")], hub=True) as place:
            yield endpoint, place


def add(site: Site, name: str, config: Any) -> None:
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    Hub(site, site, {"config.json": text}, name)


def test_only_the_configuration_is_downloaded(hub: tuple[Site, Place]) -> None:
    endpoint, place = hub
    total = llamath.load(CONFIG).parameters.total
    code, _, text = place.ask(f"{place.path}model/hub:org:name")
    assert code == 200 and f"{total:,} parameters" in text and "org/name" in text
    assert {x.path.partition("?")[0].rpartition("/")[2] for x in endpoint.seen} == {
        "main",
        "config.json",
    }
    asked = len(endpoint.seen)
    for x in (
        "models/gpt2/hub:org:name",
        "models/hub:org:name/~1",
        "models/hub:org:name/hub:org:name",
    ):
        assert place.ask(place.path + x)[0] == 200
    assert len(endpoint.seen) > asked and place.ask(f"{place.path}model/hub:org:name")[2] == text


@pytest.mark.parametrize(
    "name",
    [
        "hub:org",
        "hub:org:",
        "hub::name",
        "hub:org:name:more",
        "hub:org%2Fname",
        "hub:..:name",
        "hub:org:..%2f..%2fapi",
        "hub:org:name@main",
        "hub:org:name%3Fx",
        "hub:org:name%23",
        "hub:org:na%00me",
        "hub:org:%EF%BD%8Eame",
        "HUB:org:name",
        "hub:http:%2F%2Fx.invalid",
        "hf:%2F%2Forg%2Fname",
        "org%2Fname",
        f"hub:{'a' * 97}:name",
        "hub:-org:name",
    ],
)
def test_invalid_repository_ids_cause_no_request(hub: tuple[Site, Place], name: str) -> None:
    endpoint, place = hub
    asked = len(endpoint.seen)
    assert place.ask(f"{place.path}model/{name}")[0] in (400, 404)
    assert len(endpoint.seen) == asked


def test_hub_errors_are_reported(hub: tuple[Site, Place]) -> None:
    endpoint, place = hub
    assert place.ask(f"{place.path}model/hub:org:absent")[0] == 404
    api = "/api/models/org/{}/revision/main"
    endpoint.pages[api.format("gated")] = status(403, {"X-Error-Code": "GatedRepo"})
    endpoint.pages[api.format("broken")] = status(500)
    endpoint.pages[api.format("away")] = status(302, {"Location": "file:///etc/passwd"})
    for name in ("gated", "broken", "away"):
        code, _, text = place.ask(f"{place.path}model/hub:org:{name}")
        assert code == 424 and "Choose a model" in text, name


def test_silent_hub_is_reported(hub: tuple[Site, Place]) -> None:
    endpoint, _ = hub
    endpoint.pages["/api/models/org/silent/revision/main"] = raw(
        b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", pause=2 * HANG_S
    )
    with served([llamath.load("gpt2")], hub=True, hub_limits=QUICK) as place:
        code, _, text = place.ask(f"{place.path}model/hub:org:silent")
    assert code == 424 and "Choose a model" in text


HOSTILE: dict[str, Any] = {
    "deep": b"[" * 100_000,
    "text": b"\xff\xfe",
    "list": [],
    "empty": {},
    "untyped": {"vocab_size": 3},
    "unknown": {"model_type": PAYLOAD},
    "layers": CONFIG | {"num_hidden_layers": 100_000},
    "more-layers": CONFIG | {"num_hidden_layers": 10**9},
    "huge": CONFIG | {"hidden_size": 10**400},
    "nothing": CONFIG | {"vocab_size": 0},
    "wrong": CONFIG | {"vocab_size": PAYLOAD},
    "heads": CONFIG | {"num_attention_heads": 3},
    "twice": b'{"model_type": "llama", "model_type": "gpt2"}',
    "long": b'{"a": "' + b"a" * (40 << 20) + b'"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_configuration_is_a_clear_error(hub: tuple[Site, Place], name: str) -> None:
    endpoint, place = hub
    add(endpoint, f"bad/{name}", HOSTILE[name])
    code, _, text = place.ask(f"{place.path}model/hub:bad:{name}")
    shown = text.partition("<body>")[2]
    assert code in (422, 424) and PAYLOAD not in text and 100 < len(shown) < 1500
    assert place.ask(f"{place.path}model/~1")[0] == 200
