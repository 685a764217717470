"""Headers of dropped files that `llamath serve` reads: the library's answers and words, from the first bytes alone, and within the access policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_page_drop import U64, drop, gguf, hostile_files, key, tensor, text, valid_files
from test_posted_configs import send_raw

import llamath
from llamath.checkpoint.formats.checkpoint_files import read_source
from llamath.checkpoint.formats.source import Bytes
from llamath.utils.errors import FormatError
from llamath.web.server.posted_configs import MAX_FIRST_BYTES
from support.browser_page import Tab, browser, lent_page, visit
from support.serving import Place, served

pytest.importorskip("uvicorn")
assert browser and Tab
BYTES_TYPE = {"Content_Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with served([llamath.load("gpt2")]) as found:
        yield found


def send(place: Place, name: str, data: bytes, size: int | None = None) -> tuple[int, Any]:
    path = f"{place.path}header?size={len(data) if size is None else size}"
    status, _, body = place.ask_bytes(path, "POST", data, **BYTES_TYPE, Llamath_Name=name)
    return status, json.loads(body)


def read(name: str, data: bytes) -> Any:
    """Return the tensors by the library, or its error."""
    try:
        return [
            [x.name, x.dtype, [str(n) for n in x.shape], str(x.bytes)]
            for x in read_source(Bytes(data, f"the file {name}")).tensors
        ]
    except FormatError as error:
        return error


def test_answers_are_those_of_the_library(place: Place) -> None:
    for name, data in valid_files():
        status, found = send(place, name, data)
        assert status == 200 and [x[:4] for x in found["tensors"]] == read(name, data), name
        if name.endswith(".safetensors"):
            ends = [int(x[4]) + int(x[3]) for x in found["tensors"]]
            assert found["data_start"] + max(ends, default=0) == len(data), name


def test_refusals_are_in_the_words_of_the_library(place: Place) -> None:
    refused = 0
    for name, data in hostile_files():
        if name.endswith(".json") or data[:2] == b"PK":
            continue
        status, found = send(place, name, data)
        wanted = read(name, data)
        assert isinstance(wanted, FormatError) and status == 422, name
        assert found["error"]["message"] == str(wanted), name
        refused += 1
    assert refused > 100


def test_server_says_how_many_bytes_it_needs(place: Place) -> None:
    keys = tuple(key(f"k.{i}", 8, text("x" * 60_000)) for i in range(50))
    data, sent, requests = gguf(keys, (tensor(),)), 1000, 0
    while "needs" in (found := send(place, "long.gguf", data[:sent], len(data))[1]):
        assert sent < found["needs"] <= len(data)
        sent, requests = found["needs"], requests + 1
    assert [x[:4] for x in found["tensors"]] == read("long.gguf", data)
    assert 0 < requests < 12


def test_other_files_and_sizes_are_refused(place: Place) -> None:
    for data in (b"PK\x03\x04" + bytes(96), U64.pack(1 << 20) + b"{" + bytes(96)):
        status, found = send(place, "x.bin", data, 1 << 40)
        assert (status, "needs" in found) == ((422, False) if data[:2] == b"PK" else (200, True))
        assert found.get("needs", 0) <= MAX_FIRST_BYTES
        if status == 422:
            assert "count" in found["error"]["hint"]
    assert send(place, "x.gguf", b"GGUF", 3)[0] == 400
    assert send(place, "x.gguf", b"GGUF", (1 << 50) + 1)[0] == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Content_Type": "application/json"}, 415),
        ({"Content_Type": "text/plain"}, 415),
        ({**BYTES_TYPE, "Content_Encoding": "gzip"}, 415),
        ({**BYTES_TYPE, "Host": "x.invalid"}, 421),
        ({**BYTES_TYPE, "Origin": "http://x.invalid"}, 403),
        ({**BYTES_TYPE, "Sec_Fetch_Site": "cross-site"}, 403),
        ({**BYTES_TYPE, "Content_Length": str(MAX_FIRST_BYTES + 1)}, 413),
        ({**BYTES_TYPE, "Transfer_Encoding": "chunked"}, 411),
    ],
)
def test_the_access_policy_holds_for_headers(
    place: Place, headers: dict[str, str], status: int
) -> None:
    assert send_raw(place, f"{place.path}header?size=2", headers)[0] == status


def test_headers_need_the_token_and_a_size(place: Place) -> None:
    assert send_raw(place, "/header?size=2", BYTES_TYPE)[0] == 405
    for size in ("", "x", "-1", "1" * 30):
        assert send_raw(place, f"{place.path}header?size={size}", BYTES_TYPE)[0] == 400
    assert place.ask(f"{place.path}header?size=2")[0] == 405


def test_dropped_file_is_read_by_the_server(browser: Any, place: Place, tmp_path: Path) -> None:
    files = dict(valid_files()) | {"cut.gguf": gguf()[:-1]}
    with lent_page(browser, 1280, 720) as page:
        asked: list[str] = []
        page.on("request", lambda x: asked.append(x.url) if x.method == "POST" else None)
        visit(page, place.address)
        for name in ("layers.safetensors", "blocks.gguf", "cut.gguf"):
            path = tmp_path / name
            path.write_bytes(files[name])
            found, wanted = drop(page, path), read(name, files[name])
            assert asked.pop().endswith(f"header?size={len(files[name])}") and not asked
            if isinstance(wanted, FormatError):
                assert str(wanted) in found["wrong"]
            else:
                assert found["stored"].startswith(f"{sum(int(x[3]) for x in wanted):,} bytes")
                assert "by the llamath that serves this page" in found["stored"]
            page.click("text=Close the file")
