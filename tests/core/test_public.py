"""Every public name is exported, documented in its docstring, and described in the reference."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import llamath
from llamath.cli.command_group import GROUPS
from llamath.cli.wording import command_of
from support.each_case import each

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


PUBLIC = dir(llamath)


@each("name", PUBLIC)
def test_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(llamath, name)), name
    assert f"`{name}" in REFERENCE.read_text(), f"{name} is not in {REFERENCE.name}"


def exported() -> set[tuple[str, str, str]]:
    """The module, name and alias of each name that type checkers see."""
    tree = ast.parse(Path(llamath.__file__).read_text())
    block = next(x for x in tree.body if isinstance(x, ast.If))
    imports = [x for x in block.body if isinstance(x, ast.ImportFrom)]
    return {(x.module or "", y.name, y.asname or "") for x in imports for y in x.names}


def test_public_names_are_those_that_type_checkers_see() -> None:
    listed = {(module, x, x) for module, names in llamath._MODULES.items() for x in names.split()}
    assert listed == exported() and {x for _, x, _ in listed} == set(PUBLIC)
    for module, name, _ in listed:
        found = getattr(importlib.import_module(f"llamath.{module}"), name)
        assert getattr(llamath, name) is found
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        llamath.laod  # noqa: B018


@each("name", [x for x in PUBLIC if inspect.isclass(getattr(llamath, x))])
def test_public_methods_are_documented(name: str) -> None:
    cls = getattr(llamath, name)
    for attribute, value in vars(cls).items():
        if not attribute.startswith("_") and (
            inspect.isfunction(value) or isinstance(value, property)
        ):
            assert inspect.getdoc(value), f"{name}.{attribute}"


def test_no_function_has_the_name_of_a_module() -> None:
    modules = {path.stem for path in Path(llamath.__path__[0]).iterdir()}
    assert not modules & set(PUBLIC)


def test_import_needs_the_standard_library_only() -> None:
    code = "import sys, llamath; dir(llamath); print(*sorted(x for x in sys.modules if x.startswith('llamath')))"
    parts = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert parts == ["llamath"]


def test_import_of_the_command_line_keeps_the_collector() -> None:
    code = "import gc; before = gc.get_threshold(); from llamath.cli import cli; assert gc.isenabled() and gc.get_threshold() == before"
    subprocess.run([sys.executable, "-c", code], check=True)


def map_of_functions() -> dict[str, dict[str, str]]:
    """Heading -> function -> what it is for, as `help(llamath)` shows them."""
    groups: dict[str, dict[str, str]] = {"": {}}
    heading = ""
    for line in (llamath.__doc__ or "").splitlines():
        if row := re.fullmatch(r"    (\w+) {2,}(\S.*)", line):
            groups[heading][row[1]] = row[2]
        elif re.fullmatch(r"[A-Z][a-z ]+", line):
            groups[heading := line] = {}
    return groups


@pytest.mark.slow
def test_help_is_a_map_of_all_functions() -> None:
    help_text = "import llamath; help(llamath)"
    shown = subprocess.run(
        [sys.executable, "-c", help_text], capture_output=True, text=True, check=True
    ).stdout
    assert len(shown.splitlines()) <= 120 and "CLASSES" not in shown
    functions = {name for name in PUBLIC if inspect.isfunction(getattr(llamath, name))}
    groups = map_of_functions()
    assert sorted(x for group in groups.values() for x in group) == sorted(functions)
    assert [x for x in groups if x] == list(GROUPS)
    for heading, commands in GROUPS.items():
        assert set(commands) <= set(map(command_of, groups[heading])) | set(groups[heading]), (
            heading
        )
