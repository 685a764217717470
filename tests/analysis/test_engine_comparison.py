"""Engines and versions side by side, and what changed for a model between two versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

import llamath
from llamath.analysis.size.serving.engine_comparison import EngineComparison
from llamath.cli import cli

SCOUT: dict[str, Any] = {
    "on": "8xh100",
    "layout": "tp=8",
    "context": 2**20,
    "engine_args": "--kv-cache-memory-bytes 10G",
}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def compare(model: str, engines: list[str], **more: Any) -> EngineComparison:
    report = llamath.compare_engines(model, engine=engines, **more)
    assert isinstance(report, EngineComparison)
    return report


def test_chunked_attention_keeps_all_tokens_before_a_version() -> None:
    # https://github.com/vllm-project/vllm/issues/16118: 24.00 GiB
    report = compare("llama-4-scout", ["vllm@0.13.0", "vllm@0.14.0"], **SCOUT)
    old, new = report.engines
    assert [x.report.starts for x in report.engines] == [False, True] and not report.starts
    assert "24.00 GiB KV cache is needed" in old.report.prints[-1] and old.since is None
    assert new.since == "0.13.0" and [x.name for x in new.changes] == ["kept_whole"]
    assert "does not start → starts" in new.changes[0].effect
    assert "0.14.0" in new.changes[0].source


def test_a_rule_that_went_is_a_change() -> None:
    report = compare("minimax-m2", ["vllm@0.28.0", "vllm"], on="8xh100")
    names = {x.name: x.effect for x in report.engines[1].changes}
    assert names["fp8-block-experts"].startswith("no longer refused: The output_size")


def test_figures_without_an_effect_are_no_change() -> None:
    report = compare("llama-3.1-8b", ["vllm@0.25.0", "vllm@0.25.1"], on="h100")
    assert report.starts and report.engines[1].changes == ()
    text = "\n".join(str(x) for x in report.engines[1].report.prints)
    assert text == "\n".join(report.engines[0].report.prints)


def test_changes_add_up_to_the_difference_of_a_default() -> None:
    before, after = compare("llama-3.1-8b", ["vllm@0.19.1", "vllm@0.20.0"], on="h100").engines
    assert [x.name for x in after.changes] == ["graphs_gib", "memory_fraction"]
    assert before.report.engine.figure("memory_fraction") == 0.9
    assert after.report.engine.figure("memory_fraction") == 0.92


def test_engines_that_differ_have_no_changes() -> None:
    report = compare("llama-3.1-8b", ["vllm", "sglang", "trtllm"], on="h100")
    assert report.starts and all(x.since is None and not x.changes for x in report.engines)
    assert "vLLM 0.33.0" in report.summary and "TensorRT-LLM 1.2.0" in report.summary


def test_the_command_exits_by_all_and_lists_all() -> None:
    words = ("fit", "minimax-m2", "--on", "8xh100", "--engine", "vllm@0.28.0,vllm")
    done = run(*words, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1 and [x["starts"] for x in found] == [False, True]
    assert found[1]["since"] == "0.28.0" and found[1]["changes"][0]["source"]
    assert run(*words[:-1], "vllm,vllm@0.33.0").exit_code == 0


@pytest.mark.parametrize(
    ("engines", "message", "hint"),
    [
        ("vllm@0.25.7,vllm", "releases 0.11.0 to 0.33.0", "vllm@0.25.1 or --engine vllm@0.26.0"),
        ("vllm,vlm", "unknown engine 'vlm'", "did you mean vllm?"),
        ("sglang@0.4,vllm", "releases 0.5.23 alone", "sglang@0.5.23"),
        ("vllm@99,vllm", "releases 0.11.0", "vllm@0.33.0"),
        ("vllm@new,vllm", "numbers with dots, found 'new'", "vllm@"),
    ],
)
def test_unknown_versions_are_refused_with_the_nearest(
    engines: str, message: str, hint: str
) -> None:
    done = run("fit", "llama-3.1-8b", "--on", "h100", "--engine", engines)
    assert done.exit_code == 2 and message in done.stderr and hint in done.stderr
