"""The page's engine, in WebAssembly and TypeScript, computes what the native engine computes for the bundled model."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import llamath
import wasm
from llamath import embedded
from llamath.analysis.check.verify.verified_checkpoint import open_verified
from llamath.native.live.plain_weights import plain_weights
from llamath.native.live.program_bytes import program_bytes
from llamath.native.lowering import lower

WEB = Path(__file__).parents[2] / "web"
TEXT = "Ben was in the park. He had a red ball. Who has the"
CLOSE = 1e-4


@pytest.fixture(scope="module")
def watched() -> llamath.WatchedPass:
    return llamath.watch(TEXT, dtype="float32")


@pytest.fixture(scope="module")
def found(watched: llamath.WatchedPass, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What node found."""
    if shutil.which("node") is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("node and the packages of web/ are not installed")
    folder = tmp_path_factory.mktemp("live")
    checkpoint = open_verified(embedded.path(), {})
    program = lower(checkpoint.model.text.tree, keep=True)
    (folder / "program.bin").write_bytes(program_bytes(program))
    places, stored = {}, bytearray()
    for x in plain_weights(checkpoint, program):
        places[x.path] = (x.dtype, len(stored), len(stored) + len(x.values))
        stored += x.values
    (folder / "weights.bin").write_bytes(stored)
    task = {"ids": watched.ids, "weights": places, "names": watched.names}
    (folder / "task.json").write_text(json.dumps(task))
    script = Path(__file__).with_name("live_engine.mjs")
    done = subprocess.run(
        ["node", str(script), str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return result


def flat(watched: llamath.WatchedPass, name: str) -> list[float]:
    numbers: list[float] = watched[name].cast("B").cast("f").tolist()
    return numbers


def assert_close(found: list[float], expected: list[float], name: str = "") -> None:
    assert len(found) == len(expected), name
    largest = max(map(abs, expected))
    worst = max(abs(x - y) for x, y in zip(found, expected, strict=True))
    assert worst <= CLOSE * largest, (name, worst, largest)


def test_module_is_compiled_from_these_sources() -> None:
    assert wasm.is_current(), "run `make wasm`"


def test_every_result_is_that_of_the_native_engine(
    watched: llamath.WatchedPass, found: dict[str, Any]
) -> None:
    assert list(found["values"]) == watched.names and len(watched.names) > 60
    for name, (shape, numbers) in found["values"].items():
        assert [x for x in shape if x > 1] == [x for x in watched[name].shape if x > 1], name
        assert_close(numbers, flat(watched, name), name)


def test_logits_do_not_depend_on_how_tokens_are_read(
    watched: llamath.WatchedPass, found: dict[str, Any]
) -> None:
    expected = [x for i in range(len(watched.ids)) for x in watched.session.logits(i)]
    assert_close(found["logits"], expected)
    assert_close(found["steps"], expected)
    assert_close(found["again"], expected[2 * len(expected) // len(watched.ids) :])
    assert found["next"] == watched.likely[0].id
    sizes = found["sizes"]
    assert (sizes["vocab"], sizes["length"]) == (watched.llama.native.vocab, len(watched.ids))


def test_refusals_name_what_was_found(found: dict[str, Any]) -> None:
    messages = found["messages"]
    assert messages["id"] == "a token is 1048576, expected 0 to 895"
    assert messages["none"].endswith("tokens, found 0")
    assert messages["step"] == "the pass has no step layers.9.attn.q"
    assert messages["truncate"] == "there are no so many tokens"
    assert messages["missing"] == "the weight embed.weight is missing"
    assert "bytes in F32, expected" in messages["short"]
    assert messages["dtype"] == "the weight embed.weight is in F64, expected F32, F16, BF16"
    assert "bytes, and says otherwise" in messages["program"]


def test_engine_goes_on_after_a_trap(found: dict[str, Any]) -> None:
    assert found["messages"]["trap"] == "the engine has stopped: unreachable"
    assert found["messages"]["stopped"] == "the engine has stopped"
    assert found["restarted"] == found["logits"]
