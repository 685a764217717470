"""Cases of a test that only run before a release, with `--all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def usual(*always: Any, release: Iterable[Any] = ()) -> list[Any]:
    """Return the cases of each run, and those of `make test-all` that are not among them."""
    more = [x for x in release if x not in always]
    return [
        *always,
        *(
            pytest.param(*(x if type(x) is tuple else (x,)), marks=pytest.mark.release)
            for x in more
        ),
    ]
