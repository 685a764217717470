"""`each`: many small cases in one test, which costs a hundredth of a test for each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

Test = Callable[..., None]
SHOWN = 20
"""Failures that are shown whole."""
chosen: list[str] = []
"""The word of `--case`: other cases are left out."""


def each(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: Any = None
) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but one test: it goes on after a case that fails, and names
    each of those. Fixtures are made once, so that no case may change them. `--case WORD` runs
    those whose names contain a word.
    """
    keys = (names,) if isinstance(names, str) else names
    found = list(labelled(keys, list(cases), ids))

    def decorate(test: Test) -> Test:
        plain, others = getattr(test, "each", (test, [("", {})]))
        every = [
            (f"{other}-{label}".strip("-"), more | values)
            for label, values in found
            for other, more in others
        ]

        @functools.wraps(plain)
        def check(**fixtures: Any) -> None:
            wanted = [x for x in every if all(word in x[0] for word in chosen)]
            failed: list[Exception] = []
            skipped: list[BaseException] = []
            for label, values in wanted:
                try:
                    plain(**fixtures, **values)
                except Exception as error:
                    error.add_note(f"case: {label}")
                    failed.append(error)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(wanted)} cases fail", failed[:SHOWN])
            if len(skipped) == len(wanted):
                raise skipped[0] if skipped else pytest.skip.Exception("no such case")

        whole = inspect.signature(plain)
        vars(check).update(
            each=(plain, every),
            pytestmark=getattr(test, "pytestmark", []),
            __signature__=whole.replace(
                parameters=[x for name, x in whole.parameters.items() if name not in every[0][1]]
            ),
        )
        return check

    return decorate


def labelled(
    keys: tuple[str, ...], cases: list[Any], ids: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a case is called, and its values."""
    names = [None] * len(cases) if ids is None or callable(ids) else list(ids)
    for case, name in zip(cases, names, strict=True):
        marked = isinstance(case, type(pytest.param()))
        values = case.values if marked else (case,) if len(keys) == 1 else tuple(case)
        written = (str(ids(x) if callable(ids) else x) for x in values)
        own = (case.id if marked else None) or name or "-".join(written)
        yield str(own), dict(zip(keys, values, strict=True))
