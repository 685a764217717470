"""Questions are stated once: functions, options, schemas and pages have the fields of their records."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import llamath
import signatures
from llamath.cli import cli
from llamath.cli.question_options import FieldOption
from llamath.cli.report_tools import TOOLS, agent_schema
from llamath.questions.pass_questions import TraceQuestion
from llamath.questions.question_list import QUESTIONS
from llamath.questions.sampling_settings import SamplingSettings
from llamath.questions.settings import Field, Question, Settings, Spec
from llamath.questions.value_kinds import RATIO, SHARE
from llamath.utils.errors import ArgumentError
from support.each_case import each
from support.typed_commands import Typed

SOURCES = Path(__file__).parents[2] / "src" / "llamath"
FIELDS = [
    pytest.param(question, name, field, id=f"{question.function}-{name}")
    for question in QUESTIONS
    for name, field in question.described.items()
]


def options() -> Iterator[tuple[str, FieldOption]]:
    """Every option of a command that is a field of a question."""
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield from ((name, x) for x in command.params if isinstance(x, FieldOption))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda x: x.function)
def test_signature_is_that_of_the_record(question: type[Question]) -> None:
    function = getattr(llamath, question.function)
    own = list(inspect.signature(function).parameters.values())
    models, rest = own[: len(question.models)], own[len(question.models) :]
    assert [x.name for x in models] == list(question.models)
    assert {x.name for x in rest} == {*question.described, *question.more} and len(own) <= 10
    for x in rest:
        if x.name in question.more:
            assert x.default is None and x.kind is inspect.Parameter.KEYWORD_ONLY
            continue
        field = question.described[x.name]
        if x.kind is inspect.Parameter.VAR_POSITIONAL:
            assert field.positional and field.kind.annotation.startswith(x.annotation)
            continue
        default = inspect.Parameter.empty if field.is_required else field.signature_default
        assert x.default == default and x.annotation.startswith(field.kind.annotation), x
        is_positional = x.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert is_positional == field.positional
    shown = " ".join((inspect.getdoc(function) or "").split())
    for name, field in question.described.items():
        assert f"{name}: {' '.join(field.text().split())}" in shown


def test_public_functions_have_at_most_ten_arguments() -> None:
    functions = {x: getattr(llamath, x) for x in dir(llamath)}
    numbers = {
        name: len(inspect.signature(x).parameters)
        for name, x in functions.items()
        if inspect.isfunction(x)
    }
    assert len(numbers) > 25 and {x: n for x, n in numbers.items() if n > 10} == {}


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff formats what is written")
def test_functions_are_as_the_script_writes_them() -> None:
    text = signatures.API.read_text()
    assert signatures.written(text) == text
    stale = text.replace("batch: int = 1", "batch: int = 2", 1)
    assert stale != text and signatures.written(stale) == text


@each(("question", "name", "field"), FIELDS)
def test_field_is_explained_and_has_a_valid_default(
    question: type[Question], name: str, field: Field[Any]
) -> None:
    assert field.text().endswith((".", "…", "?")) and "--" not in field.text()
    if not field.is_required:
        assert question.described[name].parse(name, None) == field.default
    if not field.is_required and field.signature_default not in (None, ""):
        assert field.parse(name, field.default) == field.default


def test_options_and_schemas_are_those_of_fields() -> None:
    found = list(options())
    assert len({name for name, _ in found}) >= 1
    for name, option in found:
        assert option.help and option.help.startswith(option.schema["description"][:15]), option
        if name in TOOLS:
            schema = agent_schema(TOOLS[name])["properties"]
            key = option.opts[0].removeprefix("--").replace("-", "_")
            if key in schema:
                assert schema[key] == option.schema


def settings_classes() -> set[type[Settings]]:
    """The records of settings that are values of questions, and the questions."""
    found: set[type[Settings]] = {*QUESTIONS, TraceQuestion, SamplingSettings}
    for question in QUESTIONS:
        for field in question.described.values():
            if isinstance(field.kind, Spec):
                found.add(field.kind.record)
    return found


def repeated_texts(trees: list[ast.Module], helps: set[str]) -> Counter[str]:
    """How often each of these texts is written in sources."""
    return Counter(
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in helps
    )


def repeated_defaults(trees: list[ast.Module], defaults: set[tuple[str, object]]) -> list[str]:
    """The fields of requests with a default that a question has, too, written out again."""
    return [
        f"{record.name}.{x.target.id}"
        for tree in trees
        for record in ast.walk(tree)
        if isinstance(record, ast.ClassDef) and record.name.endswith("Request")
        for x in record.body
        if isinstance(x, ast.AnnAssign)
        and isinstance(x.target, ast.Name)
        and isinstance(x.value, ast.Constant)
        and x.value.value is not None
        and (x.target.id, x.value.value) in defaults
    ]


@pytest.mark.slow
def test_no_help_and_no_default_is_written_twice() -> None:
    fields = {id(y): (x, y) for c in settings_classes() for x, y in c.described.items()}.values()
    helps = Counter(y.help for _, y in fields)
    assert [x for x, n in helps.items() if n > 1] == []
    sources = [x.read_text() for x in SOURCES.rglob("*.py")]
    begun = {x[:12] for x in helps}  # what is written in pieces begins in the first of them
    trees = [ast.parse(x) for x in sources if "Request(" in x or any(y in x for y in begun)]
    assert {x for x, n in repeated_texts(trees, set(helps)).items() if n > 1} == set()
    plain = (bool, int, float, str)
    defaults = {(x, y.default) for x, y in fields if isinstance(y.default, plain)}
    assert repeated_defaults(trees, defaults) == []


def plain(text: str) -> str:
    """A help text without its default and its keys."""
    return re.sub(r"\s*\[default:.*|:[^:]*=.*", "", text).rstrip(".")


def test_no_option_states_what_a_record_states() -> None:
    fields = {id(y): y for c in settings_classes() for y in c.described.values()}.values()
    helps = {plain(x.help) for x in fields}
    declared = [
        f"{name} {x.opts[0]}"
        for name in cli.list_commands(click.Context(cli))
        for x in getattr(cli.get_command(click.Context(cli), name), "params", ())
        if isinstance(x, click.Option) and not isinstance(x, FieldOption)
        if plain(x.help or "") in helps
    ]
    assert declared == [] and plain("The rank.  [default: 3]") in helps


def test_a_second_help_or_default_is_found() -> None:
    again = ast.parse('class ARequest(Record):\n    batch: int = 1\n    help: str = "The rank."\n')
    assert repeated_texts([again, again], {"The rank."})["The rank."] == 2
    assert repeated_defaults([again], {("batch", 1), ("context", 2)}) == ["ARequest.batch"]


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ({"layout": "tp=8,pp=2"}, {"layout": llamath.Layout(tp=8, pp=2)}),
        ({"lora": "r=16,targets=q,v"}, {"lora": llamath.Lora(r=16, targets=("q", "v"))}),
        ({"training": "recompute=full"}, {"training": llamath.Training(recompute="full")}),
        ({"context": "8k", "batch": "3"}, {"context": 8192, "batch": 3}),
    ],
)
def test_text_and_typed_values_ask_the_same(text: dict[str, Any], typed: dict[str, Any]) -> None:
    from llamath.questions.memory_questions import TrainingQuestion

    assert TrainingQuestion.parse(**text) == TrainingQuestion.parse(**typed)


def test_values_of_typed_settings_are_checked() -> None:
    with pytest.raises(ArgumentError, match="layout: tp=0: expected an integer from 1 to"):
        llamath.training_memory("gpt2", layout=llamath.Layout(tp=0))
    with pytest.raises(ArgumentError, match=r"layout should be text such as .* or a Layout, found"):
        llamath.training_memory("gpt2", layout=llamath.Lora(r=1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="lora needs r, an integer"):
        llamath.training_memory("gpt2", lora="targets=q")


def test_errors_name_the_argument_the_option_and_the_field(typed: Typed) -> None:
    with pytest.raises(ArgumentError, match=r"^kv_dtype should be text such as"):
        llamath.memory("gpt2", kv_dtype=3)  # type: ignore[arg-type]
    found = typed("memory", "gpt2", "--training", "--kv-dtype", "fp8", "--json")
    assert found.status == 2 and json.loads(found.out)["error"] == {
        "message": "--kv-dtype is for inference, not for training",
        "hint": "",
        "code": "bad_input",
        "field": "kv_dtype",
    }
    error = json.loads(typed("design", "8B", "--set", "num_hidden_layers=x", "--json").out)["error"]
    assert error["field"] == "set" and error["message"].startswith(
        "--set: num_hidden_layers=x: expected"
    )


def test_questions_need_no_analysis() -> None:
    code = (
        "import sys, llamath.questions.question_list; "
        "print(*(x for x in sys.modules if x.startswith('llamath.analysis') or x == 'click'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("text", ["1e99999999", "1/1" + "0" * 5000, "0." + "1" * 4000, "1e-999999"])
def test_fractions_of_huge_exponents_are_refused_at_once(text: str) -> None:
    for kind in (SHARE, RATIO):
        with pytest.raises(ValueError):
            kind.read(text)
    assert RATIO.read("8/3") == (8 / 3, 8 / 3) and float(SHARE.read("5e-1%")) == 0.005
