"""Free memory, as the system and a container report it, and requests that are rejected before memory is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import llamath
from llamath.analysis.size.memory.inference_memory import MemoryRequest, memory
from llamath.torch import build, check_memory_for, memory_budget
from llamath.torch.module import TensorOptions
from llamath.utils.errors import LlamathError
from support.small_llama import SMALL

CPU = torch.device("cpu")
REQUEST = MemoryRequest(context=64, batch=3, chunk=64)


@pytest.mark.skipif(
    not Path("/proc/meminfo").exists(), reason="available memory is read from Linux's /proc"
)
def test_free_bytes_come_from_the_system() -> None:
    meminfo = {
        line.split(":")[0]: int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if "kB" in line
    }
    free = memory_budget.free_bytes(CPU, cgroup="/nowhere/")
    assert free is not None
    assert 0 < free < meminfo["MemTotal"]


def test_container_limit_reduces_free_bytes(tmp_path: Path) -> None:
    cgroup = f"{tmp_path}/memory."
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\nfile 100000\nkernel 100000\n")
    assert memory_budget.free_bytes(CPU, cgroup) == 400_000  # the file cache can be reclaimed
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_budget.free_bytes(CPU, cgroup) != 400_000
    assert memory_budget.free_bytes(torch.device("meta")) is None


def test_model_larger_than_memory_is_rejected() -> None:
    model = llamath.load(SMALL)
    options = TensorOptions(torch.bfloat16, CPU)
    need = check_memory_for(model, REQUEST, options)
    report = memory(model, REQUEST.replace(dtype="bf16"))
    assert need == report.weights + report.kv_cache + report.activations + report.logits
    assert (
        need - check_memory_for(model, REQUEST, options, loaded=True)
        == report.weights
        == 2 * model.parameters.total
    )
    assert check_memory_for(model, REQUEST, options, free=need) == need
    with pytest.raises(
        LlamathError,
        match=f"3 sequences of 64 tokens in bfloat16 need {need:,} bytes .* but {need - 1:,} .* are free on cpu",
    ):
        check_memory_for(model, REQUEST, options, free=need - 1)


def test_devices_that_report_no_free_memory_are_not_checked() -> None:
    options = TensorOptions(torch.bfloat16, torch.device("meta"))
    assert (
        check_memory_for(llamath.load("deepseek-v3"), REQUEST.replace(batch=10**9), options)
        > 10**15
    )


def test_cache_has_the_predicted_size() -> None:
    model = llamath.load(SMALL)
    module = build(model, torch.bfloat16)
    cache = module.new_cache(64)
    with torch.no_grad():
        module(torch.zeros(3, 5, dtype=torch.long), cache)
    assert cache.nbytes == memory(model, REQUEST.replace(dtype="bf16")).kv_cache


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("bf16", torch.bfloat16),
        ("FP32", torch.float32),
        ("torch.float16", torch.float16),
        ("double", torch.float64),
    ],
)
def test_dtypes_are_parsed_in_every_spelling(word: str, kind: torch.dtype) -> None:
    assert memory_budget.parse_dtype(word) == kind == memory_budget.parse_dtype(kind)


def test_unknown_dtype_gets_a_hint() -> None:
    with pytest.raises(LlamathError) as error:
        memory_budget.parse_dtype("bloat16")
    assert error.value.hint == "did you mean bf16?"
