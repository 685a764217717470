"""Every public name is exported, documented in its docstring, and described in the reference."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

import llamath

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


@pytest.mark.parametrize("name", llamath.__all__)
def test_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(llamath, name)), name
    assert f"`{name}" in REFERENCE.read_text(), f"{name} is not in {REFERENCE.name}"


def test_all_lists_what_is_public() -> None:
    lived = {name for names in llamath._ROOMS.values() for name in names.split()}
    assert lived == set(llamath.__all__) == set(dir(llamath))
    for room, names in llamath._ROOMS.items():
        for name in names.split():
            assert getattr(llamath, name) is getattr(importlib.import_module(f"llamath.{room}"), name)
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        llamath.laod  # noqa: B018


@pytest.mark.parametrize("name", [x for x in llamath.__all__ if inspect.isclass(getattr(llamath, x))])
def test_public_methods_are_documented(name: str) -> None:
    cls = getattr(llamath, name)
    for attribute, value in vars(cls).items():
        if not attribute.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{attribute}"
