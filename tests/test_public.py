"""Every public name is exported, documented in its docstring, and described in the reference."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import llamath

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"


@pytest.mark.parametrize("name", llamath.__all__)
def test_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(llamath, name)), name
    assert f"`{name}" in REFERENCE.read_text(), f"{name} is not in {REFERENCE.name}"


def test_all_lists_what_is_public() -> None:
    public = {name for name, x in vars(llamath).items() if not name.startswith("_") and not inspect.ismodule(x)}
    assert public - {"annotations"} == set(llamath.__all__)


@pytest.mark.parametrize("name", [x for x in llamath.__all__ if inspect.isclass(getattr(llamath, x))])
def test_public_methods_are_documented(name: str) -> None:
    cls = getattr(llamath, name)
    for attribute, value in vars(cls).items():
        if not attribute.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{attribute}"
