"""The shipped OpenAPI file describes the server, and generated requests find no failure."""

from __future__ import annotations

import json
import shutil
import sysconfig
from collections.abc import Iterator
from typing import Any

import pytest

import llamath
import openapi
from llamath.cli.report_tools import TOOLS
from llamath.web.server.application import ROUTES
from schema import SCHEMA, requested
from support.serving import Place, served

pytest.importorskip("uvicorn")
FILE: dict[str, Any] = json.loads(SCHEMA.read_text())


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with served([llamath.load("gpt2")], hub=True) as found:
            yield found


def described_responses(path: str) -> dict[str, Any]:
    found = FILE["paths"][path]["get"]["responses"]
    names = {status: x["$ref"].rpartition("/")[2] for status, x in found.items() if "$ref" in x}
    return {status: FILE["components"]["responses"].get(names.get(status), x) for status, x in found.items()}


def test_openapi_describes_exactly_the_routes() -> None:
    pages = {x[1:] for x in FILE["paths"] if not x.startswith("/api/")}
    assert pages == set(ROUTES)
    assert {x.removeprefix("/api/") for x in FILE["paths"]} - {f"/{x}" for x in pages} == {x.name for x in TOOLS.values() if not x.local}
    for path in (f"/{x}" for x in pages):
        own = FILE["paths"][path]["get"].get("parameters", [])
        assert {x["$ref"].rpartition("/")[2] for x in own} == {x for x in ("a", "b", "chunk") if f"{{{x}}}" in path}


def test_openapi_file_is_generated() -> None:
    assert openapi.description() == FILE


def test_openapi_file_is_served_unchanged(place: Place) -> None:
    status, headers, text = place.ask(f"{place.path}openapi.json")
    assert status == 200 and json.loads(text) == FILE and headers["content-type"] == "application/json"


WAYS: list[tuple[str, dict[str, Any], int]] = [
    ("", {}, 200),
    ("choose", {}, 200),
    ("gallery/0", {}, 200),
    ("gallery/99", {}, 404),
    ("gallery/-1", {}, 404),
    ("model/gpt2", {}, 200),
    ("models/gpt2/~1", {}, 200),
    ("model/none", {}, 404),
    ("models/gpt2/none", {}, 404),
    ("model/hub:a:b", {}, 424),
    ("openapi.json", {"Origin": "http://x.invalid"}, 403),
    ("choose", {"Sec-Fetch-Site": "same-site"}, 403),
    ("choose", {"Host": "x.invalid"}, 421),
    ("model/gpt2", {"body": b"x"}, 413),
    ("choose", {"method": "DELETE"}, 405),
]


@pytest.mark.parametrize(("path", "how", "status"), WAYS)
def test_every_response_is_described(place: Place, path: str, how: dict[str, Any], status: int) -> None:
    found, headers, _ = place.ask(place.path + path, **how)
    assert found == status
    if status == 405:
        assert headers["allow"] == "GET, HEAD"
        return
    pattern = (
        "/gallery/{chunk}"
        if path.startswith("gallery/")
        else "/model/{a}"
        if path.startswith("model/")
        else "/models/{a}/{b}"
        if path.startswith("models/")
        else f"/{path}"
    )
    response = described_responses(pattern)[str(status)]
    assert headers["content-type"].partition(";")[0] in response["content"]
    for name, header in response.get("headers", {}).items():
        schema = FILE["components"]["headers"][header["$ref"].rpartition("/")[2]]["schema"]
        assert headers[name.lower()] in schema.get("enum", [headers[name.lower()]])


@pytest.mark.skipif(shutil.which("schemathesis", path=sysconfig.get_path("scripts")) is None, reason="schemathesis is not installed")
def test_schemathesis_finds_no_failure(place: Place) -> None:
    found = requested(place.address, 20)
    assert found["requests"] >= 300 and found["operations"] == sum(x in ("get", "post") for path in FILE["paths"].values() for x in path)
    assert not found["failures"] and not found["errors"], found["output"]
