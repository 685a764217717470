"""The description that the server answers is valid OpenAPI of exactly its routes, and requests that are made from it find no failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

import llamath
from llamath.cli.report_tools import TOOLS, parameters, required
from llamath.web.server.application import ROUTES
from schema import requested
from support.serving import Place, served

pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with served([llamath.load("gpt2")], hub=True) as found:
            yield found


@pytest.fixture(scope="module")
def description(place: Place) -> dict[str, Any]:
    status, headers, text = place.ask(f"{place.path}openapi.json")
    assert status == 200 and headers["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(text)
    return found


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a description."""
    if isinstance(value, dict):
        yield value
    for x in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from parts(x)


def resolve(description: dict[str, Any], reference: str) -> Any:
    """What a reference stands for."""
    found: Any = description
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def test_description_is_of_exactly_the_routes_and_parameters(description: dict[str, Any]) -> None:
    pages = {x[1:] for x in description["paths"] if not x.startswith("/api/")}
    assert pages == set(ROUTES)
    tools = {f"/api/{x.name}": x for x in TOOLS.values() if not x.local}
    assert description["paths"].keys() - {f"/{x}" for x in pages} == tools.keys()
    for path in (f"/{x}" for x in pages):
        own = description["paths"][path]["get"]["parameters"]
        assert {x["$ref"].rpartition("/")[2] for x in own} == {
            x for x in ("a", "b", "chunk") if f"{{{x}}}" in path
        }
    for path, tool in tools.items():
        found = {x["name"]: x for x in description["paths"][path]["get"]["parameters"]}
        known = parameters(tool)
        assert found.keys() == known.keys() and all(x["description"] for x in found.values()), path
        assert {name for name, x in found.items() if x.get("required")} == {
            name for name, x in known.items() if required(name, x)
        }, path


def test_description_is_valid_openapi(description: dict[str, Any]) -> None:
    """Its schemas are valid, its references lead somewhere, and everything that is described once is used."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    used = {x["$ref"] for x in parts(description) if "$ref" in x}
    assert all(isinstance(resolve(description, x), dict) for x in used)
    assert used == {
        f"#/components/{kind}/{name}"
        for kind, found in description["components"].items()
        for name in found
    }
    schemas = [x["schema"] for x in parts(description) if "schema" in x] + list(
        description["components"]["schemas"].values()
    )
    for schema in schemas:
        validator.check_schema(schema)
    assert (
        description["openapi"].startswith("3.1.")
        and {"title", "version"} <= description["info"].keys()
    )
    operations = [
        path[x] for path in description["paths"].values() for x in ("get", "post") if x in path
    ]
    names = [x["operationId"] for x in operations]
    assert len(names) == len(set(names)) and all(
        x["summary"] and "200" in x["responses"] for x in operations
    )
    assert all("description" in x for x in description["components"]["responses"].values())


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
def test_every_response_is_described(
    place: Place, description: dict[str, Any], path: str, how: dict[str, Any], status: int
) -> None:
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
    response = resolve(
        description, description["paths"][pattern]["get"]["responses"][str(status)]["$ref"]
    )
    assert headers["content-type"].partition(";")[0] in response["content"]
    for name, header in response.get("headers", {}).items():
        schema = resolve(description, header["$ref"])["schema"]
        assert headers[name.lower()] in schema.get("enum", [headers[name.lower()]])


@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")
def test_schemathesis_finds_no_failure(
    request: pytest.FixtureRequest, place: Place, description: dict[str, Any]
) -> None:
    """A few examples and random requests of each operation, and with `--all` those at each bound."""
    every = request.config.getoption("--all")
    found = requested(place.address, 20 if every else 4, phases="" if every else "examples,fuzzing")
    operations = sum(x in ("get", "post") for path in description["paths"].values() for x in path)
    assert found["requests"] >= 200 and found["operations"] == operations
    assert not found["failures"] and not found["errors"], found["output"]
