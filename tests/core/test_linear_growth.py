"""Every regular expression takes a number of steps that grows linearly with the text, also where it does not match."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

import llamath
from llamath.checkpoint.formats import safetensors
from support.regex_steps import StepCounter, growth

_FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
_SEARCHES = _FUNCTIONS - {"match", "fullmatch", "compile"}
_TRUSTED = {"llamath.web.server.page_html"}
"""Modules whose expressions read only files of this package."""
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
                is_searched = re.search(rf"\b{name}\.(?:{'|'.join(_SEARCHES)})\(", source) is not None
                found[module.__name__, value.pattern] = (value.flags & ~re.UNICODE, is_searched)
        for call in ast.walk(ast.parse(source)):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _FUNCTIONS:
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


def test_steps_of_every_regular_expression_grow_linearly() -> None:
    found = []
    for (module, pattern), (flags, is_searched) in patterns().items():
        factor, text = growth(pattern, _SIZE, is_searched, flags)
        if factor >= _LINEAR:
            found.append(f"{module}: the steps of {pattern!r} grow {factor:.2f}-fold when {text} doubles")
    assert found == []


@pytest.mark.parametrize("pattern", [r"\[ *(?:\d(?: *,)*)? *\]", r"(a+)+b", r"(?:a|a)*b", r"a*a*b", r"\s*x\s*\s*y"])
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
            assert StepCounter(pattern).match(text) == (expected.end() if expected else None), (pattern, text)
