"""Checkpoints in object stores, with fsspec's in-memory store as an example."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.checkpoint.hub import read_remote
from llamath.checkpoint.open import open_checkpoint
from llamath.utils.errors import FormatError, LlamathError, RemoteError
from support.hub_server import (
    CONFIG,
    DATA,
    SHARDS,
    error_text,
    header_length,
    indexed,
    on_disk,
    same,
)

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def memory() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def test_object_stores_are_read(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"config.json": json.dumps(CONFIG).encode(), **indexed(SHARDS)}
    for name, data in files.items():
        memory.pipe(f"/bucket/model/{name}", data)
    read: list[int] = []
    cat_file = type(memory).cat_file

    def counted(self: Any, path: str, start: int, end: int) -> bytes:
        read.append(end - start)
        return bytes(cat_file(self, path, start=start, end=end))

    monkeypatch.setattr(type(memory), "cat_file", counted)
    remote = read_remote("memory://bucket/model").manifest
    same(remote, on_disk(tmp_path, files))
    headers = sum(9 + 8 + header_length(x) for x in SHARDS.values())
    assert sum(read) == headers + len(files["model.safetensors.index.json"])
    same(read_remote("memory://bucket/model/model.safetensors.index.json").manifest, remote)
    checkpoint = open_checkpoint("memory://bucket/model/model-00002-of-00012.safetensors")
    assert (
        checkpoint.config.keys == CONFIG
        and checkpoint.revision == ""
        and checkpoint.manifest.files[0].name.startswith("memory://bucket/model/")
    )
    assert (
        llamath.load("memory://bucket/model").parameters.total
        == llamath.load(CONFIG).parameters.total
    )


def test_object_store_errors_are_translated(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/bucket/model.safetensors", DATA)
    with pytest.raises(FormatError):
        read_remote("memory://bucket/other.safetensors")
    with pytest.raises(RemoteError) as raised:
        read_remote("memory://user:sealed@bucket/model.safetensors")
    assert raised.value.code == "scheme"
    failures = {
        PermissionError("sealed"): "forbidden",
        RuntimeError("sealed"): "network",
        FileNotFoundError(): "missing",
    }
    for failure, code in failures.items():

        def fail(*_: Any, error: Exception = failure, **__: Any) -> bytes:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "cat_file", fail)
            with pytest.raises(RemoteError) as raised:
                read_remote("memory://bucket/model.safetensors")
            assert raised.value.code == code and "sealed" not in error_text(raised.value)
    for response in (b"short", DATA + b"x", None):
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "cat_file", lambda *_, response=response, **__: response)
            with pytest.raises(RemoteError) as raised:
                read_remote("memory://bucket/model.safetensors")
            assert raised.value.code == "range"


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_store_whose_package_is_missing_is_named(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    package = {"s3": "s3fs", "gs": "gcsfs"}[scheme]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(llamath.MissingExtra, match=f"needs {package}") as error:
        read_remote(f"{scheme}://bucket/model.safetensors")
    extra = {"s3": "s3", "gs": "gcs"}[scheme]
    assert error.value.hint == f"pip install 'llamath[{extra}]'"
    monkeypatch.setitem(sys.modules, "adlfs", None)
    with pytest.raises(LlamathError, match="needs adlfs") as error:
        read_remote("az://bucket/model.safetensors")
    assert error.value.hint == "pip install adlfs"
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(llamath.MissingExtra, match="fsspec") as error:
        read_remote(f"{scheme}://bucket/model.safetensors")
    assert error.value.hint == f"pip install 'llamath[{extra}]'"
