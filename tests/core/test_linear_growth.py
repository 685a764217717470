"""Every regular expression takes a number of steps that grows linearly with the text, also where it does not match."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import llamath
from llamath.checkpoint.adapters import ValuePattern
from llamath.checkpoint.formats import safetensors
from llamath.checkpoint.quantization.recipes import Matrix, module_names, read_recipe
from llamath.utils import linear_regex
from llamath.utils.errors import LlamathError
from support.regex_steps import StepCounter, growth

_FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
_SEARCHES = _FUNCTIONS - {"match", "fullmatch", "compile"}
_TRUSTED = {"llamath.web.server.page_html"}
"""Modules whose expressions read only files of this package."""
_LOCAL = {
    # built from names and numbers of this package's own tables, or from an escaped name of a table of tensor names
    "checkpoint.formats.tokenizer_model": 1,
    "analysis.size.placement.layer_sizes": 1,
    "conversion.edit.edited_config": 1,
}
"""Calls of `re` whose pattern is no constant of its module; a pattern from a file is matched by `utils.linear_regex` alone."""
_SIZE = 100
"""Characters of the shorter text: enough for a square to show, as it would grow 4-fold."""
_LINEAR = 2.6
"""The largest growth that counts as linear when a text doubles; constant parts make it less than 2, a square approaches 4."""


def modules() -> Iterator[ModuleType]:
    """Import every module of the library that its optional dependencies allow."""
    for found in pkgutil.walk_packages(llamath.__path__, "llamath."):
        if found.name not in _TRUSTED | {"llamath.__main__"}:
            try:
                yield importlib.import_module(found.name)
            except ImportError:
                continue


def patterns() -> dict[tuple[str, str | bytes], tuple[int, bool]]:
    """Return module and pattern of every call to `re`, with its flags and whether it is tried at every position of a text."""
    found: dict[tuple[str, str | bytes], tuple[int, bool]] = {}
    for module in modules():
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str | bytes):
                is_searched = (
                    re.search(rf"\b{name}\.(?:{'|'.join(_SEARCHES)})\(", source) is not None
                )
                found[module.__name__, value.pattern] = (value.flags & ~re.UNICODE, is_searched)
        calls = ast.walk(ast.parse(source)) if re.search(r"\bre\.", source) else ()
        for call in calls:
            if (
                not isinstance(call, ast.Call)
                or not isinstance(call.func, ast.Attribute)
                or call.func.attr not in _FUNCTIONS
            ):
                continue
            if isinstance(call.func.value, ast.Name) and call.func.value.id == "re":
                flags = [
                    x
                    for x in (*call.args[1:], *(y.value for y in call.keywords if y.arg == "flags"))
                    if re.search(r"\bre\.[A-Z]", ast.unparse(x))
                ]
                try:
                    pattern = eval(ast.unparse(call.args[0]), vars(module))
                except NameError:  # it is made of a local name, and listed below
                    continue
                number = int(eval(ast.unparse(flags[-1]), vars(module))) if flags else 0
                if call.func.attr != "compile" or (module.__name__, pattern) not in found:
                    found[module.__name__, pattern] = (number, call.func.attr in _SEARCHES)
    for text in (safetensors._ARRAY, safetensors._KIND, *safetensors._ENTRIES):
        compiled = safetensors._pattern(text)
        found[safetensors.__name__, compiled.pattern] = (0, True)
    found["llamath.checkpoint.formats.tokenizer_model", r'"merges"\s*:\s*(?=[\[{])'] = (0, True)
    return found


@pytest.mark.slow
def test_steps_of_every_regular_expression_grow_linearly() -> None:
    found = []
    for (module, pattern), (flags, is_searched) in patterns().items():
        factor, text = growth(pattern, _SIZE, is_searched, flags)
        if factor >= _LINEAR:
            found.append(
                f"{module}: the steps of {pattern!r} grow {factor:.2f}-fold when {text} doubles"
            )
    assert found == []


@pytest.mark.parametrize(
    "pattern", [r"\[ *(?:\d(?: *,)*)? *\]", r"(a+)+b", r"(?:a|a)*b", r"a*a*b", r"\s*x\s*\s*y"]
)
@pytest.mark.slow
def test_step_counter_finds_superlinear_expressions(pattern: str) -> None:
    assert growth(pattern, 8, False)[0] > _LINEAR  # exponential ones take 2¹⁶ steps


def test_step_counter_matches_what_python_matches() -> None:
    texts = ["", "a", "aa", "ab", "aab", "[1, 2]", "[ ]", "x=1", "blk.12.w", "aXbX", "0", "00"]
    for pattern in (
        r"a*b?",
        r"a+?b",
        r"(?:ab|a)*+b?",
        r"\[ *(?:[0-9](?:, *[0-9])*)? *\]",
        r"(\w+)=(?=\d)\d",
        r"blk\.(\d+)\.(.*)",
        r"(?:a|X)+(?!c)",
    ):
        for text in texts:
            expected = re.match(pattern, text)
            assert StepCounter(pattern).match(text) == (expected.end() if expected else None), (
                pattern,
                text,
            )


@pytest.mark.slow
def test_no_pattern_from_a_file_reaches_python_matcher() -> None:
    found: dict[str, int] = {}
    for path in sorted(Path(llamath.__path__[0]).rglob("*.py")):
        name = ".".join(path.relative_to(llamath.__path__[0]).with_suffix("").parts)
        text = path.read_text()
        if not re.search(r"\bre\b|fnmatch|sre_", text):
            continue
        tree = ast.parse(text)
        constants = {
            x.id
            for node in tree.body
            for x in ast.walk(node)
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
        }
        imported = {
            x.asname or x.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for x in node.names
        }
        for node in ast.walk(tree):
            modules = [x.name for x in node.names] if isinstance(node, ast.Import) else []
            modules += (
                [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            )
            assert not {"fnmatch", "sre_parse", "sre_compile", "re._parser"}.intersection(
                modules
            ), name
            if (
                not isinstance(node, ast.Call)
                or not isinstance(node.func, ast.Attribute)
                or node.func.attr not in _FUNCTIONS
            ):
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                names = {x.id for x in ast.walk(node.args[0]) if isinstance(x, ast.Name)}
                inner = {
                    x.id
                    for x in ast.walk(node.args[0])
                    if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
                }
                found[name] = found.get(name, 0) + bool(
                    names - constants - imported - inner - {"map"}
                )
    assert {name: n for name, n in found.items() if n} == _LOCAL


_HARD = (
    "(?:[a-z._0-9]?){40}!",
    "((a+)+)+b",
    ".*.*.*.*.*.*x",
    "(?:a|a?|b)*!",
    "^(?!.*(a|b|c)+d).*!",
    r"(?:layers\.\d+\.?)*(?=.*x.*y)!",
)


def _recipe(
    section: Callable[[list[str]], dict[str, Any]],
) -> Callable[[list[str], list[str]], None]:
    def ask(patterns: list[str], names: list[str]) -> None:
        recipe = read_recipe(section(patterns))
        for name in names:
            recipe.choose(Matrix(module_names(name), "linear"))

    return ask


def _adapter(patterns: list[str], names: list[str]) -> None:
    values = ValuePattern({"rank_pattern": dict.fromkeys(patterns, 1)}, "rank_pattern", "adapter")
    for name in names:
        values.find(name)
    values.unmatched(names)


_READERS: dict[str, Callable[[list[str], list[str]], None]] = {
    "dynamic": _recipe(
        lambda x: {"quant_method": "gptq", "bits": 4, "dynamic": {f"-:{y}": {} for y in x}}
    ),
    "modules_to_not_convert": _recipe(
        lambda x: {"quant_method": "fp8", "modules_to_not_convert": x}
    ),
    "ignore": _recipe(
        lambda x: {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8}}},
            "ignore": [f"re:{y}" for y in x],
        }
    ),
    "extra_config": _recipe(
        lambda x: {
            "quant_method": "auto-round",
            "bits": 4,
            "extra_config": {y: {"bits": 8} for y in x},
        }
    ),
    "rank_pattern": _adapter,
}


@pytest.mark.slow
def test_steps_of_patterns_from_files_grow_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of all lists in a file are bounded, linear in the names, and linear in the patterns where these differ."""
    steps = [0]
    visit = linear_regex._Budget.visit
    monkeypatch.setattr(
        linear_regex._Budget,
        "visit",
        lambda self, n: (steps.__setitem__(0, steps[0] + n), visit(self, n))[1],
    )

    def count(
        ask: Callable[[list[str], list[str]], None], patterns: list[str], names: list[str]
    ) -> int:
        steps[0] = 0
        ask(patterns, names)
        return steps[0]

    for key, ask in _READERS.items():
        for pattern in _HARD:
            few, many, most = (
                count(ask, [pattern], [f"model.layers.0.{'abc.' * n}q_proj"])
                for n in (50, 100, 200)
            )
            assert most <= 2.2 * many <= 5 * few + 5000, (key, pattern, few, many, most)
        few, many, most = (
            count(
                ask,
                [f"{i}.*" + ".*" * 5 + str(i) for i in range(n)],
                [f"model.layers.{i}.mlp" for i in range(n)],
            )
            for n in (25, 50, 100)
        )
        assert most <= 2.6 * many <= 7 * few + 5000, (key, few, many, most)
    monkeypatch.setattr(linear_regex, "MAX_STEPS", 50_000)
    for key, ask in _READERS.items():
        with pytest.raises(LlamathError, match="take more than 50,000 steps"):
            ask(
                [f".*{i}.*{i}.*{i}!" for i in range(300)],
                [f"{i:09b}.{i * 7919}" for i in range(10_000)],
            )
        assert steps[0] < 10_000_000, key
