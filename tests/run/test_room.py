"""Memory: what is free, as the system and a container say it, and what is refused before it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import llamath
import llamath.analysis.inference.inference_memory
from llamath.analysis.inference.inference_memory import MemoryRequest
from llamath.core.errors import LlamathError
from llamath.run import build, check_memory_for
from llamath.run import memory_budget as room
from llamath.run.module import TensorOptions
from support.checkpoints import SMALL

CPU = torch.device("cpu")
REQUEST = MemoryRequest(context=64, batch=3, chunk=64)


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="what is available is read as Linux says it")
def test_what_is_free_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "CGROUP", "/nowhere/")
    found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines() if "kB" in line}
    free = room.free_bytes(CPU)
    assert free is not None
    assert 0 < free < found["MemTotal"]


def test_a_container_may_leave_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(room, "CGROUP", f"{tmp_path}/memory.")
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\nfile 100000\nkernel 100000\n")
    assert room.free_bytes(CPU) == 400_000  # the cache of files gives way
    (tmp_path / "memory.max").write_text("max\n")
    assert room.free_bytes(CPU) != 400_000
    assert room.free_bytes(torch.device("meta")) is None


def test_a_model_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llamath.load(SMALL)
    place = TensorOptions(torch.bfloat16, CPU)
    need = check_memory_for(model, REQUEST, place)
    report = llamath.analysis.inference.inference_memory.memory(model, REQUEST.replace(dtype="bf16"))
    assert need == report.weights + report.kv_cache + report.activations + report.logits
    assert need - check_memory_for(model, REQUEST, place, loaded=True) == report.weights == 2 * model.parameters.total
    monkeypatch.setattr(room, "free_bytes", lambda _: need)
    assert check_memory_for(model, REQUEST, place) == need
    monkeypatch.setattr(room, "free_bytes", lambda _: need - 1)
    with pytest.raises(
        LlamathError, match=f"3 sequences of 64 tokens in bfloat16 takes {need:,} bytes .* and {need - 1:,} .* are free on cpu"
    ):
        check_memory_for(model, REQUEST, place)
    monkeypatch.setattr(room, "free_bytes", lambda _: None)  # a device that does not say
    assert check_memory_for(model, REQUEST, place) == need


def test_the_cache_is_as_large_as_predicted() -> None:
    model = llamath.load(SMALL)
    module = build(model, torch.bfloat16)
    cache = module.new_cache(64)
    with torch.no_grad():
        module(torch.zeros(3, 5, dtype=torch.long), cache)
    assert cache.nbytes == llamath.analysis.inference.inference_memory.memory(model, REQUEST.replace(dtype="bf16")).kv_cache


@pytest.mark.parametrize(
    ("word", "kind"), [("bf16", torch.bfloat16), ("FP32", torch.float32), ("torch.float16", torch.float16), ("double", torch.float64)]
)
def test_types_by_their_words(word: str, kind: torch.dtype) -> None:
    assert room.parse_dtype(word) == kind == room.parse_dtype(kind)


def test_a_word_that_is_none_has_a_hint() -> None:
    with pytest.raises(LlamathError) as found:
        room.parse_dtype("bloat16")
    assert "bfloat16" in found.value.hint
