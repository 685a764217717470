"""Ollama: its context by memory and version, its variables, its runner and its slots."""

from __future__ import annotations

from typing import Any

import pytest

import llamath
from llamath.analysis.size.serving.engine_report import EngineReport


def plan(on: str, variables: str = "", engine: str = "ollama", **more: Any) -> EngineReport:
    more = {"dtype": "q4_k_m", **more}
    model = more.pop("model", "llama-3.1-8b")
    report = llamath.fit_engine(model, on=on, engine=engine, engine_args=variables, **more)
    assert isinstance(report, EngineReport)
    return report


@pytest.mark.parametrize(
    ("on", "engine", "context"),
    [
        ("rtx-3060-12gb", "ollama", 4096),
        ("rtx-4090", "ollama", 32768),
        ("2xrtx-3060-12gb", "ollama", 32768),
        ("h100", "ollama", 131072),  # 262,144, of which the model has half
        ("2xrtx-4090", "ollama", 131072),
        ("h100", "ollama@0.15.4", 4096),
        ("h100", "ollama@0.15.5", 131072),
    ],
)
def test_the_default_context_depends_on_memory_and_version(
    on: str, engine: str, context: int
) -> None:
    report = plan(on, engine=engine)
    assert report.context == context and f"OLLAMA_CONTEXT_LENGTH={context}" in report.command
    assert any("the default of Ollama" in x and "from " in x for x in report.notes)


def test_gpt_oss_had_more_tokens_before_the_tiers() -> None:
    contexts = [
        plan("rtx-4090", engine=f"ollama@{x}", model="gpt-oss-20b", dtype="mxfp4_moe").context
        for x in ("0.10.1", "0.11.3", "0.15.4", "0.15.5")
    ]
    assert contexts == [4096, 8192, 8192, 32768]
    small = plan("rtx-3060-12gb", engine="ollama@0.11.4", model="gpt-oss-20b", dtype="mxfp4_moe")
    assert small.context == 4096


def test_a_given_context_is_no_default() -> None:
    for report in (plan("h100", context=8192), plan("h100", "OLLAMA_CONTEXT_LENGTH=8192")):
        assert report.context == 8192 and not any("default" in x for x in report.notes)


def test_slots_each_have_the_context() -> None:
    one, four = (
        plan("h100", f"OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL={n}") for n in (1, 4)
    )
    assert "1024.00 MiB (  8192 cells" in one.prints[0]
    assert "4096.00 MiB ( 32768 cells" in four.prints[0] and "NUM_PARALLEL=4" in four.command
    same = plan("h100", "-c 32768 -np 4", engine="llama.cpp")
    assert same.prints == four.prints


def test_types_without_parallel_requests_have_one_slot() -> None:
    report = plan(
        "h100", "OLLAMA_NUM_PARALLEL=4 OLLAMA_CONTEXT_LENGTH=8192", model="qwen3-next-80b-a3b"
    )
    assert "OLLAMA_NUM_PARALLEL" not in report.command
    assert any("does not currently support parallel requests" in x for x in report.notes)


def test_own_engines_print_no_lines_of_llama_cpp() -> None:
    report = plan("rtx-4090", engine="ollama@0.24.0")
    assert report.starts and not report.prints
    assert any("the cache is that of llama.cpp" in x for x in report.notes)


def test_a_model_that_does_not_fit_starts_in_ram() -> None:
    report = plan("rtx-4090", model="llama-3.1-70b")
    assert not report.starts and "Ollama itself starts, with some layers in RAM" in report.notes


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ("--num-ctx 4096", "has variables of its environment, found '--num-ctx'"),
        ("OLLAMA_NUM_CTX=4096", "has no flag OLLAMA_NUM_CTX"),
        ("OLLAMA_KV_CACHE_TYPE=q5_0", "one of f16, q8_0, q4_0"),
        ("OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=0", "requires flash_attn"),
        ("OLLAMA_NUM_PARALLEL=0", "a number from 1 on"),
    ],
)
def test_other_variables_are_refused(variables: str, message: str) -> None:
    with pytest.raises(llamath.LlamathError) as error:
        plan("rtx-4090", variables)
    assert message in str(error.value)
