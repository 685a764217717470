"""Reports: their JSON equals that of the command line, their repr is one line, and notebooks show tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

import llamath
from llamath import LlamathError
from llamath.cli import cli

REPORTS: dict[str, Callable[[], llamath.Report]] = {
    "count llama-3-8b": lambda: llamath.count("llama-3-8b"),
    "count deepseek-v2-lite": lambda: llamath.count("deepseek-v2-lite"),
    "facts llama-3-8b": lambda: llamath.facts("llama-3-8b"),
    "config llama-3-8b": lambda: llamath.config("llama-3-8b"),
    "config deepseek-v3": lambda: llamath.config("deepseek-v3"),
    "diff llama-2-7b llama-3-8b": lambda: llamath.diff("llama-2-7b", "llama-3-8b"),
    "diff llama-3-8b --set num_hidden_layers=40": lambda: llamath.diff(
        "llama-3-8b", changes={"num_hidden_layers": 40}
    ),
    "diff llama-2-7b llama-3-8b gpt2": lambda: llamath.diff("llama-2-7b", "llama-3-8b", "gpt2"),
    "explain 2839830528": lambda: llamath.explain(2839830528),
    "explain 8.03B --like llama-3-8b": lambda: llamath.explain("8.03B", like="llama-3-8b"),
    "design 8B --set tp=8 --top 2 --budget tokens=15T": lambda: llamath.design(
        "8B", bounds="tp=8", top=2, budget="tokens=15T"
    ),
    "design 1.5e9 --like gpt2 --top 1": lambda: llamath.design("1.5e9", like="gpt2", top=1),
    "memory llama-3.1-70b --context 128k --dtype q4_k_m --batch 4": lambda: llamath.memory(
        "llama-3.1-70b", context="128k", dtype="q4_k_m", batch=4
    ),
    "memory llama-3-8b --training --layout tp=2,dp=8,zero=1": lambda: llamath.training_memory(
        "llama-3-8b", layout="tp=2,dp=8,zero=1"
    ),
    "memory llama-3-8b --lora r=16,targets=q,v": lambda: llamath.training_memory(
        "llama-3-8b", lora="r=16,targets=q,v"
    ),
    "flops llama-3-8b --context 8,192": lambda: llamath.flops("llama-3-8b", context="8,192"),
    "fit llama-3-8b --on 2xh100 --context 8k": lambda: llamath.fit(
        "llama-3-8b", on="2xh100", context="8k"
    ),
    "fit llama-3.1-70b --on rtx-4090 --context 8k": lambda: llamath.fit(
        "llama-3.1-70b", on="rtx-4090", context="8k"
    ),
    "fit llama-3-8b": lambda: llamath.rank_gpus("llama-3-8b"),
    "names llama-3-8b": lambda: llamath.names("llama-3-8b"),
    "models qwen3": lambda: llamath.models("qwen3"),
    "gpus h100": lambda: llamath.gpus("h100"),
    "ls embedded": lambda: llamath.ls("embedded"),
    "verify embedded": lambda: llamath.verify("embedded"),
}


@cache
def report(line: str) -> llamath.Report:
    return REPORTS[line]()


@pytest.mark.parametrize("line", REPORTS)
def test_json_equals_the_json_of_the_command(line: str) -> None:
    command, *arguments = line.split()
    ran = CliRunner().invoke(cli, [command, *arguments, "--json"], standalone_mode=False)
    assert json.loads(json.dumps(report(line).to_json())) == json.loads(ran.stdout)


@pytest.mark.parametrize("line", REPORTS)
def test_print_prints_what_the_command_prints(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command, *arguments = line.split()
    ran = CliRunner().invoke(cli, [command, *arguments], standalone_mode=False)
    assert str(report(line)) + "\n" == ran.stdout
    assert bool(report(line)) == (ran.exit_code == 0)


@pytest.mark.parametrize("line", REPORTS)
def test_entries_can_be_indexed_and_rows_are_plain_values(line: str) -> None:
    found = report(line)
    entries = list(found)
    assert len(found) == len(entries) and found[:2] == found.entries[:2]
    assert all(isinstance(x, dict) and json.loads(json.dumps(x)) == x for x in found.rows())


@pytest.mark.parametrize("line", REPORTS)
def test_repr_is_one_short_line(line: str) -> None:
    text = repr(report(line))
    assert text.startswith("<") and "\n" not in text and 20 < len(text) < 300, text


@pytest.mark.parametrize("line", REPORTS)
def test_notebook_shows_a_table(line: str) -> None:
    html = report(line)._repr_html_()
    assert html.count("<table") == html.count("</table>") >= 1
    assert html.count("<tr") == html.count("</tr>") >= 1


def test_json_of_a_conversion_equals_that_of_the_command(embedded_copy: Path) -> None:
    target = embedded_copy.parent / "out"
    found = llamath.convert(embedded_copy, target, names="gguf", dry_run=True)
    ran = CliRunner().invoke(
        cli,
        ["convert", str(embedded_copy), str(target), "--names", "gguf", "--dry-run", "--json"],
        standalone_mode=False,
    )
    assert found.to_json() == json.loads(ran.stdout) and not target.exists()


def test_export_writes_the_page_of_the_command(tmp_path: Path) -> None:
    target, again = tmp_path / "page.html", tmp_path / "again.html"
    found = llamath.export(["llama-2-7b", Path("llama-3-8b")], target)
    words = ["export", "llama-2-7b", "llama-3-8b", "-o", str(again), "--json"]
    ran = CliRunner().invoke(cli, words, standalone_mode=False)
    assert target.read_bytes() == again.read_bytes() and "wrote" in ran.stderr
    assert found.to_json() | {"output": str(again)} == json.loads(ran.stdout)
    with pytest.raises(LlamathError, match="already exists"):
        llamath.export("gpt2", target)
    assert llamath.export(llamath.load("gpt2"), target, force=True).to_json()["models"] == [
        "GPT-2 small"
    ]
    with pytest.raises(LlamathError, match="not of models in memory"):
        llamath.export(3 * [llamath.load("gpt2")], tmp_path / "site")


def test_export_of_a_list_writes_a_gallery(tmp_path: Path) -> None:
    found = llamath.export(["gpt2", "distilgpt2", "llama-1-7b"], tmp_path / "site")
    assert (tmp_path / "site/models/gpt2.html").exists() and found.to_json()["models"] == 3
    assert found.rows() == [found.to_json()]


def test_html_of_a_strangers_name_is_escaped() -> None:
    model = llamath.load("gpt2").replace(name="<img src=x>")
    for found in (llamath.count(model), llamath.memory(model), llamath.names(model)):
        assert "<img" not in found._repr_html_()


def test_json_of_a_count_can_leave_out_the_weights() -> None:
    found = llamath.count("llama-3-8b")
    assert found.to_json(weights=False) == found.to_json() | {"weights": []}
