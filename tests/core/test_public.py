"""Every public name is exported, documented in its docstring, and described in the reference."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import llamath

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


PUBLIC = dir(llamath)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(llamath, name)), name
    assert f"`{name}" in REFERENCE.read_text(), f"{name} is not in {REFERENCE.name}"


def test_all_lists_the_public_names() -> None:
    listed = {name for names in llamath._MODULES.values() for name in names.split()}
    assert listed == set(PUBLIC)
    functions = {name for name in PUBLIC if inspect.isfunction(getattr(llamath, name))}
    assert set(llamath.__all__) == functions
    for module, names in llamath._MODULES.items():
        for name in names.split():
            assert getattr(llamath, name) is getattr(
                importlib.import_module(f"llamath.{module}"), name
            )
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        llamath.laod  # noqa: B018


@pytest.mark.parametrize("name", [x for x in PUBLIC if inspect.isclass(getattr(llamath, x))])
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


def test_help_fits_a_few_screens() -> None:
    text = pydoc.plain(pydoc.render_doc(llamath))
    assert len(text.splitlines()) <= 400 and "memory(" in text and "CLASSES" not in text
