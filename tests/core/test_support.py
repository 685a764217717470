"""What the tests themselves stand on."""

from __future__ import annotations

import inspect

import pytest

from support.each_case import each


def test_each_goes_on_and_names_the_cases_that_fail() -> None:
    seen = []

    @each("n", [1, pytest.param(2, id="two")])
    @each("letter", "ab")
    def check(n: int, letter: str, fixture: str) -> None:
        seen.append(f"{fixture}{n}{letter}")
        assert n == 1 or letter == "a"

    assert list(inspect.signature(check).parameters) == ["fixture"]
    with pytest.raises(ExceptionGroup, match="1 of 4 cases fail") as found:
        check(fixture="x")
    assert seen == ["x1a", "x1b", "x2a", "x2b"]
    assert found.value.exceptions[0].__notes__ == ["case: b-two"]


def test_each_runs_the_chosen_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @each("n", [1, 2])
    @each("word", ["one", "two"])
    def check(n: int, word: str) -> None:
        seen.append((n, word))

    monkeypatch.setattr("support.each_case.chosen", ["two-1"])
    check()
    assert seen == [(1, "two")]
    monkeypatch.setattr("support.each_case.chosen", ["three"])
    with pytest.raises(pytest.skip.Exception, match="no such case"):
        check()


def test_each_is_skipped_where_every_case_is() -> None:
    @each("name", ["here", "absent"])
    def check(name: str, absent: tuple[str, ...]) -> None:
        if name in absent:
            pytest.skip(f"{name} is not there")

    check(absent=("absent",))
    with pytest.raises(pytest.skip.Exception, match="here is not there"):
        check(absent=("here", "absent"))
