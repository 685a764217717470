"""What the tests share: the published truth, and transformers' own checkpoint of a tiny model as the oracle of names and shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("llamath", deadline=None)  # machines are shared: how long an example takes says nothing
settings.load_profile("llamath")

TRUTH = Path(__file__).parents[2] / "shared" / "truth"
TINY = Path(__file__).parent / "tiny"


def truth(name: str) -> list[dict[str, Any]]:
    """The lines of a file of published facts; empty where the checkout stands alone."""
    path = TRUTH / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tiny_configs() -> list[Any]:
    """Every tiny config of `tests/tiny/FAMILY.json`: `{"label": {…HF keys with model_type…}}`."""
    return [
        pytest.param(config, id=f"{path.stem}-{label}")
        for path in sorted(TINY.glob("*.json"))
        for label, config in json.loads(path.read_text()).items()
    ]


SETTINGS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN"),
    *(change(f"{kind}_proxy") for kind in ("http", "https", "all", "no") for change in (str.lower, str.upper)),
)
"""What could lead a test of the network elsewhere."""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests counts, no stored token is read, and no host but this one is looked up."""
    import socket

    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("llamath.checkpoint.hub.hub_repo._stored", lambda: "")
    found = socket.getaddrinfo

    def local(host: Any, *args: Any, **options: Any) -> Any:
        assert host in ("127.0.0.1", "localhost"), f"{host} was looked up"
        return found(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local)


@pytest.fixture
def site(alone: None) -> Iterator[Any]:
    """A web server on loopback."""
    from support.hub_server import sites

    with sites(1) as (one,):
        yield one


@pytest.fixture
def pair(alone: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two of them: the hub's endpoint, and the store that it redirects to."""
    from support.hub_server import sites

    with sites(2) as (endpoint, store):
        monkeypatch.setenv("HF_ENDPOINT", endpoint.url)
        yield endpoint, store
