"""Errors and hints in the words of each caller: Python, a shell, an agent, and a program over HTTP."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import llamath
from llamath import LlamathError, embedded
from llamath.cli.command_group import COMMANDS, cli, find_command
from llamath.cli.report_tools import TOOLS, HttpRequest, ToolCall, answer
from llamath.cli.wording import CommandLine, command_of
from llamath.utils.errors import Argument, Call, Command, Name, worded

SOURCE = Path(llamath.__file__).parent
WAYS: Mapping[str, Callable[..., object]] = {
    x: getattr(llamath, x) for x in dir(llamath) if x.islower()
}
"""Function by name."""
PYTHON = re.compile(r"llamath\.\w+\(|\b[a-z_]+='")
"""What only a Python user types."""
SHELL = re.compile(r"(?<!-)--[a-z]|`llamath |llamath \w+ --help")
"""What only the user of a shell types."""

_OF_NO_TOOL = "`llamath count MODEL --via transformers`"
"""What an agent can only do in a shell."""
_FUNCTIONS = {"training": "training_memory", "names": "stored_names"}
"""Option -> the function that answers a question with it."""
_OF_NOTEBOOKS = {"show"}
"""The functions without a command."""
_BY_KEYS = {"edit"}
"""What a shell gives by options for its keys."""
_POSITIONAL = ("model", "models", "words", "path", "target", "number")

CASES: list[tuple[str, dict[str, Any], str]] = [
    ("count", {"model": "lama-3-8b"}, "did you mean"),
    ("count", {"model": "xyzzy"}, "lists the presets"),
    ("facts", {"model": "xyzzy"}, "lists the presets"),
    ("gpus", {"words": ["h1000x"]}, "lists all"),
    ("models", {"words": ["zzz"]}, "lists all"),
    ("diff", {"models": ["gpt2"]}, "second"),
    ("memory", {"model": "gpt2", "context": ["no"]}, "context"),
    ("memory", {"model": "gpt2", "batch": "many"}, "batch"),
    ("memory", {"model": "gpt2", "kv_dtype": "q9"}, "KV cache"),
    ("memory", {"model": "gpt2", "on": "h1000"}, "lists all"),
    ("fit", {"model": "gpt2", "on": "h100", "offload": "much"}, "offload"),
    ("fit", {"model": "gpt2", "on": "h100", "layout": "dp=2"}, "layout"),
    ("flops", {"model": "gpt2", "on": "h100"}, "mfu"),
    ("flops", {"model": "gpt2", "images": "2x"}, "images"),
    ("plan", {"model": "gpt2", "on": "h100,h200"}, "compares several"),
    ("quants", {"model": "gpt2", "on": "h1000"}, "lists all"),
    ("memory", {"model": "gpt2", "training": "accumulate=no", "layout": "pp=2"}, "accumulate=no"),
    ("design", {"target": "8B", "bounds": "aspect=wide"}, "aspect=wide"),
    ("design", {"target": "8B", "like": "xyzzy"}, "series"),
    ("explain", {"number": "many"}, "is not a count"),
    ("names", {"model": "gpt2", "names": "mlx"}, "mlx"),
    ("ls", {"path": "nowhere"}, "nowhere"),
    ("verify", {"path": "nowhere"}, "nowhere"),
    ("names", {"model": "UNKNOWN"}, "header is exact"),
]
"""A command, its mistaken question, and words of the error."""


def python_error(command: str, question: Mapping[str, Any]) -> LlamathError:
    """Return the error of the function that answers this question."""
    options = [_FUNCTIONS[x] for x in question if x in _FUNCTIONS]
    function = WAYS[options[0] if options else command]
    given = [
        x
        for name, value in question.items()
        if name in _POSITIONAL
        for x in (value if isinstance(value, list) else [value])
    ]
    named = {x: y for x, y in question.items() if x not in _POSITIONAL}
    with pytest.raises(LlamathError) as found:
        function(*given, **named)
    return found.value


def shell_error(command: str, question: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return what the command writes to stderr, and the error of its JSON."""
    words, options, given = CommandLine(find_command, _command(command)), [], []
    for name, value in question.items():
        for x in value if isinstance(value, list) else [value]:
            if name in _POSITIONAL:
                given.append(x)
            else:
                options += words.argument(Argument(name, x)).split(" ")
    done = CliRunner().invoke(cli, [command, *options, "--json", "--", *given])
    assert done.exit_code == 2, done.output
    return done.stderr, json.loads(done.stdout)["error"]


def tool_error(command: str, question: Mapping[str, Any], *, local: bool) -> dict[str, str]:
    """Return the error of the tool of an agent, or of a request over HTTP."""
    words = ToolCall(find_command, TOOLS[command].command)
    values = []
    for name, value in question.items():
        for x in value if isinstance(value, list) else [value]:
            key, _, text = words.argument(Argument(name, x)).partition("=")
            values.append((key if text else words.field(name), text or x))
    found = answer(TOOLS[command], values, str, local=local)
    assert found.error is not None and found.exit_code == 2
    error: dict[str, str] = json.loads(found.text)["error"]
    return error


def _command(name: str) -> click.Command:
    found = find_command(name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The bundled model, and one of an unknown family."""
    unknown = tmp_path_factory.mktemp("models") / "unknown"
    shutil.copytree(embedded.path(), unknown)
    (unknown / "config.json").write_text('{"model_type": "nobody"}')
    return {"EMBEDDED": embedded.path(), "UNKNOWN": str(unknown)}


@pytest.mark.parametrize(("command", "question", "says"), CASES)
def test_each_caller_reads_its_own_words(
    command: str, question: dict[str, Any], says: str, folders: Mapping[str, str]
) -> None:
    asked = {x: folders.get(y, y) if isinstance(y, str) else y for x, y in question.items()}
    error = python_error(command, asked)
    python = f"{error} {error.hint}"
    stderr, shell = shell_error(command, asked)
    tools = [tool_error(command, asked, local=True)]
    if not TOOLS[command].local:
        tools.append(tool_error(command, asked, local=False))
    assert says in python and not SHELL.search(python)
    for text in (stderr, f"{shell['message']} {shell['hint']}"):
        assert says in text and not PYTHON.search(text)
    for tool in tools:
        text = f"{tool['message']} {tool['hint']}".replace(_OF_NO_TOOL, "")
        assert says in text and not PYTHON.search(text) and not SHELL.search(text)
        assert tool.get("field") == shell.get("field") and tool["code"] == shell["code"]
    if error.field:
        assert shell["field"] == CommandLine(find_command, _command(command)).field(error.field)


def test_a_call_is_worded_by_each_caller() -> None:
    verify = Call("verify", "a b", against=Name("model"))
    fit = Call("fit", "gpt2", on="2xh100", layout="tp=2")
    ranking = Call("rank_gpus", Name("model"))
    join = Call("convert", "a", "b", edit="join_shards=yes,tp_shards=4,part=main")
    assert str(verify) == "llamath.verify('a b', against=model)"
    assert str(fit) == "llamath.fit('gpt2', on='2xh100', layout='tp=2')"
    assert str(join) == "llamath.convert('a', 'b', edit='join_shards=yes,tp_shards=4,part=main')"
    with worded(CommandLine(find_command)):
        assert str(verify) == "`llamath verify 'a b' MODEL`"
        assert str(fit) == "`llamath fit gpt2 --on 2xh100 --layout tp=2`"
        assert str(ranking) == "`llamath fit MODEL`"
        assert str(join) == "`llamath convert a b --join-shards --tp-shards 4 --part main`"
    with worded(ToolCall(find_command)):
        assert str(verify) == "the tool verify with path=a b, against=MODEL"
        assert str(Call("verify", Name("path"), full=True)) == "`llamath verify PATH --full`"
    with worded(HttpRequest(find_command)):
        assert str(fit) == "/api/fit?model=gpt2&on=2xh100&layout=tp%3D2"
        assert str(verify) == "`llamath verify 'a b' MODEL`"
    assert str(verify) == "llamath.verify('a b', against=model)"


def test_a_command_without_a_function_is_typed_in_a_shell() -> None:
    for words in (CommandLine(find_command), ToolCall(find_command), HttpRequest(find_command)):
        with worded(words):
            text = str(Command("serve", mcp=True, root=Name("dir")))
            assert text == "`llamath serve --mcp --root DIR`"


def test_a_thread_uses_the_words_of_the_shell_too() -> None:
    with worded(CommandLine(find_command)), ThreadPoolExecutor(1) as pool:
        assert pool.submit(str, Call("models")).result() == "`llamath models`"


def _trees(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the sources that have a pattern somewhere."""
    for path in sorted(SOURCE.rglob("*.py")):
        if re.search(pattern, text := path.read_text(encoding="utf-8")):
            yield str(path.relative_to(SOURCE)), ast.parse(text)


_WORDED = r"\b(Argument|Call|Command)\("


def _worded_values(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("Argument", "Call", "Command")
        ):
            yield node


def _messages(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what an error says: its arguments, and values named `hint` and `message`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield node.exc
        elif (isinstance(node, ast.keyword) and node.arg in ("hint", "message")) or (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and re.search(r"hint|message|advice", node.targets[0].id.lower())
        ):
            yield node.value


def test_no_message_of_the_library_types_an_option() -> None:
    """Those of the commands may; options of other programs are theirs."""
    found = []
    for path, tree in _trees(r"--[a-z]|llamath[ .]"):
        if path.startswith("cli/"):
            continue
        for message in _messages(tree):
            for node in ast.walk(message):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = node.value
                    if re.search(
                        r"(?<!-)--[a-z]|llamath\.\w+\(|`llamath |llamath [a-z]+ [A-Z-]", text
                    ):
                        found.append(f"{path}:{node.lineno}: {text}")
    others = ("aria2c", "torchrun", "hf download")
    assert not [x for x in found if not any(y in x for y in others)]


def test_words_are_chosen_when_an_error_is_raised() -> None:
    for path, tree in _trees(_WORDED):
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                assert not list(_worded_values(node)), f"{path}:{node.lineno}"


def test_each_named_function_and_argument_exists() -> None:
    arguments = {x for f in WAYS.values() for x in inspect.signature(f).parameters}
    keys = set(llamath.Edit.described)
    options = {name: _parameters(name) for name in COMMANDS}
    for path, tree in _trees(_WORDED):
        for node in _worded_values(tree):
            if not node.args or not isinstance(first := node.args[0], ast.Constant):
                continue
            where, name, kind = f"{path}:{node.lineno}", first.value, node.func.id  # type: ignore[attr-defined]
            if kind == "Argument":
                assert name in arguments | options["run"] | options["serve"] | keys, where
                assert name in _BY_KEYS or any(name in x for x in options.values()), where
                continue
            given = {x.arg for x in node.keywords if x.arg}
            command = command_of(name)
            assert name in _OF_NOTEBOOKS or given <= options[command] | _BY_KEYS, where
            if kind == "Call":
                assert given <= set(inspect.signature(WAYS[name]).parameters), where


def _parameters(command: str) -> set[str]:
    found = _command(command).params
    typed = {x.lstrip("-").replace("-", "_") for y in found for x in (*y.opts, *y.secondary_opts)}
    return typed | {x for y in found for x in (y.name or "", *getattr(y, "field_names", ()))}
