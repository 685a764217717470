"""Reports: their JSON equals that of the command line, their repr is one line, and notebooks show tables."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath import LlamathError
from llamath.analysis.learn.grading import ANSWERS_SCHEMA, grade_answers
from llamath.analysis.learn.worksheet import LessonList
from llamath.analysis.understand.count.header_count import count_header
from llamath.cli import cli
from llamath.cli.command_group import COMMANDS
from support.page_models import made_once

REPORTS: dict[str, Callable[[], llamath.Report]] = {
    "count llama-3-8b": lambda: llamath.count("llama-3-8b"),
    "count deepseek-v2-lite": lambda: llamath.count("deepseek-v2-lite"),
    "facts llama-3-8b": lambda: llamath.facts("llama-3-8b"),
    "config llama-3-8b": lambda: llamath.config("llama-3-8b"),
    "config deepseek-v3": lambda: llamath.config("deepseek-v3"),
    "diff llama-2-7b llama-3-8b": lambda: llamath.diff("llama-2-7b", "llama-3-8b"),
    "diff gpt2 --nearest": lambda: llamath.diff("gpt2", nearest=True),
    "diff llama-3-8b --set num_hidden_layers=40": lambda: llamath.diff(
        "llama-3-8b", changes={"num_hidden_layers": 40}
    ),
    "diff llama-2-7b llama-3-8b gpt2": lambda: llamath.diff("llama-2-7b", "llama-3-8b", "gpt2"),
    "explain 2839830528": lambda: llamath.explain(2839830528),
    "explain 8.03B --like llama-3-8b": lambda: llamath.explain("8.03B", like="llama-3-8b"),
    "design 8B --bounds tp=8 --top 2 --budget tokens=15T": lambda: llamath.design(
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
    "fit llama-3-8b --on 3060-12gb,h100": lambda: llamath.compare_machines(
        "llama-3-8b", on=["3060-12gb", "h100"]
    ),
    "fit minimax-m2 --on 8xh100 --engine vllm": lambda: llamath.fit_engine(
        "minimax-m2", on="8xh100", engine="vllm"
    ),
    "fit llama-3-8b --on h100 --engine vllm@0.19.1,vllm": lambda: llamath.compare_engines(
        "llama-3-8b", engine=["vllm@0.19.1", "vllm"], on="h100"
    ),
    "fit gpt-oss-120b --on rtx-3060-12gb --ram 64GiB --dtype mxfp4_moe": lambda: llamath.place(
        "gpt-oss-120b", on="rtx-3060-12gb", ram="64GiB", dtype="mxfp4_moe"
    ),
    "fit llama-3.3-70b --on 4xh100 --price $2.5/h": lambda: llamath.cost(
        "llama-3.3-70b", on="4xh100", price="$2.5/h"
    ),
    "fit llama-3.1-70b --draft llama-3.2-1b": lambda: llamath.pair("llama-3.1-70b", "llama-3.2-1b"),
    "quants llama-3-8b --on rtx-3060-12gb": lambda: llamath.quants(
        "llama-3-8b", on="rtx-3060-12gb"
    ),
    "plan llama-3-70b --on 64xh100 --layout tp=8 --top 2": lambda: llamath.plan(
        "llama-3-70b", on="64xh100", layout="tp=8", top=2
    ),
    "plan llama-3.1-70b --on 8xh100 --serve --latency 50ms": lambda: llamath.plan_serving(
        "llama-3.1-70b", on="8xh100", latency="50ms"
    ),
    "names llama-3-8b": lambda: llamath.names("llama-3-8b"),
    "names gpt2 --names gguf": lambda: llamath.stored_names("gpt2", names="gguf"),
    "models qwen3": lambda: llamath.models("qwen3"),
    "learn cache llama-3.1-70b --questions 3 --seed 7": lambda: llamath.lesson(
        "cache", model="llama-3.1-70b", questions=3, seed=7
    ),
    "code gpt2": lambda: llamath.code("gpt2"),
    "gpus h100": lambda: llamath.gpus("h100"),
    "ls embedded": lambda: llamath.ls("embedded"),
    "verify embedded": lambda: llamath.verify("embedded"),
    "verify embedded --set num_key_value_heads=4": lambda: llamath.verify(
        "embedded", changes={"num_key_value_heads": 4}
    ),
    "same embedded embedded": lambda: llamath.same("embedded", "embedded"),
    "same embedded": lambda: llamath.hash_weights("embedded"),
}
ELSEWHERE = {"convert", "export", "run", "serve", "trace"}
"""Commands whose functions are compared with them by tests of their own, here or in `test_run.py`,
`test_serve.py`, `test_edit.py` and `test_trace.py`."""


@pytest.fixture(scope="module")
def page_data_made_once() -> Iterator[None]:
    with made_once():
        yield


@cache
def report(line: str) -> llamath.Report:
    return REPORTS[line]()


def test_each_command_has_a_function_of_its_name() -> None:
    functions = {x for x in dir(llamath) if inspect.isfunction(getattr(llamath, x))}
    assert set(COMMANDS) - {"learn"} | {"lesson"} <= functions
    assert {x.split()[0] for x in REPORTS} | ELSEWHERE == set(COMMANDS)


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


class Tensor:
    """A shape and a dtype, as tensors of torch have them."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.dtype = shape, "torch.float16"


STATE: Any = {"a.weight": Tensor(3, 2), "b.bias": Tensor(5)}


def compared_logits() -> llamath.Report:
    from llamath.cli.logits_comparison import compare_logits

    ask: dict[str, Any] = dict.fromkeys(("tolerance", "dtype"))
    ask |= {"prompt": "A cat", "device": "cpu", "engine": "native", "changes": ()}
    return compare_logits("embedded", "embedded", **ask)[0]


def measured() -> llamath.Report:
    from llamath.native.measure import measure
    from llamath.native.native_session import NativeLlama

    return measure(NativeLlama.open(), prompt=9, tokens=2, threads=1)


def traced() -> llamath.Report:
    pytest.importorskip("torch")
    return llamath.trace("gpt2")


def graded() -> llamath.Report:
    answers = {"matrix/attn.q": "16,777,216", "matrix/attn.k": "4,194,304"}
    given = {"schema": ANSWERS_SCHEMA, "lesson": "matrix", "answers": answers}
    return grade_answers(json.dumps(given).encode(), "answers.json", None)


FOLDER_REPORTS: dict[str, Callable[[Path, Path], llamath.Report]] = {
    "TensorCountReport": lambda _folder, _target: llamath.count(STATE),
    "WeightsReport": lambda _folder, _target: llamath.memory(STATE),
    "StructureReport": lambda folder, _target: llamath.verify(folder, against=STATE),
    "HeaderCount": lambda folder, _target: count_header(str(folder)),
    "ConversionReport": lambda folder, target: llamath.convert(
        folder, target, names="gguf", dry_run=True
    ),
    "ExportedPage": lambda _folder, target: llamath.export("gpt2", target),
    "GallerySite": lambda _folder, target: llamath.export(
        ["gpt2", "distilgpt2", "gpt2-medium"], target
    ),
    "Reply": lambda _folder, _target: llamath.run("embedded", "Anna", max_tokens=3),
    "LogitsComparison": lambda _folder, _target: compared_logits(),
    "MeasureReport": lambda _folder, _target: measured(),
    "Trace": lambda _folder, _target: traced(),
    "WatchedPass": lambda _folder, _target: llamath.watch("Anna had a red", layer=3),
    "LessonList": lambda _folder, _target: LessonList(done={"matrix": 2}),
    "Checked": lambda _folder, _target: llamath.check(
        llamath.lesson("matrix")["matrix/attn.q"], "4096²"
    ),
    "Grades": lambda _folder, _target: graded(),
}
"""The other types of reports, made of a checkpoint's folder and a target."""


def report_types() -> set[str]:
    """The classes of reports in the package."""
    texts = (x.read_text() for x in Path(llamath.__file__).parent.rglob("*.py"))
    classes = [
        (x.name, {y.id for y in x.bases if isinstance(y, ast.Name)})
        for text in texts
        if "Report" in text
        for x in ast.walk(ast.parse(text))
        if isinstance(x, ast.ClassDef)
    ]
    found = {"Report"}
    while more := {name for name, bases in classes if bases & found} - found:
        found |= more
    return found - {"Report"}


def test_every_type_of_report_is_asked_for() -> None:
    asked = {type(report(line)).__name__ for line in REPORTS} | FOLDER_REPORTS.keys()
    assert asked == report_types()


def check_as_data(found: llamath.Report) -> None:
    """A report iterates and indexes, its rows are plain values, and it is true or false."""
    entries = list(found)
    assert len(found) == len(entries) and found[:2] == found.entries[:2]
    assert [found[i] for i in range(len(found))] == entries
    rows = found.rows()
    assert rows or not entries  # of a checkpoint without findings, or without differences
    assert isinstance(rows, list) and json.loads(json.dumps(rows)) == rows
    assert len({tuple(x) for x in rows}) == min(len(rows), 1)  # the columns of a data frame
    assert isinstance(bool(found), bool)


@pytest.mark.parametrize("line", REPORTS)
def test_report_of_a_question_is_data(line: str) -> None:
    check_as_data(report(line))


@pytest.mark.parametrize("kind", FOLDER_REPORTS)
@pytest.mark.usefixtures("page_data_made_once")
def test_report_of_another_type_is_data(kind: str, embedded_copy: Path, tmp_path: Path) -> None:
    found = FOLDER_REPORTS[kind](embedded_copy, tmp_path / "target")
    assert type(found).__name__ == kind
    check_as_data(found)
    assert kind == "StructureReport" or found


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


@pytest.mark.usefixtures("page_data_made_once")
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


def test_html_of_a_strangers_name_is_escaped() -> None:
    model = llamath.load("gpt2").replace(name="<img src=x>")
    for found in (llamath.count(model), llamath.memory(model), llamath.names(model)):
        assert "<img" not in found._repr_html_()


def test_json_of_a_count_can_leave_out_the_weights() -> None:
    found = llamath.count("llama-3-8b")
    assert found.to_json(weights=False) == found.to_json() | {"weights": []}
