"""The matcher of regular expressions from files decides as Python's `re.fullmatch` does, in linear time."""

from __future__ import annotations

import random
import re

import pytest

from llamath.utils.errors import ConfigError
from llamath.utils.linear_regex import LinearRegex

ATOMS = (
    *("a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "c", r"\.", r"\b", "^", "$", "(?:a|b)", "(b|)", "1", r"\B", r"\W", r"[\d.]", r"\s"),
    *("(?P<x>a)", "[a-c1]", r"\A", r"\Z", r"[^\W_]"),
)
REPEATS = ("", "", "", "*", "+", "?", "*?", "+?", "{1,2}", "{2}", "{2,}")


def random_pattern(chance: random.Random) -> str:
    text = "".join(chance.choice(ATOMS) + chance.choice(REPEATS) for _ in range(chance.randint(1, 6)))
    return f"({text})|{chance.choice(ATOMS)}" if chance.random() < 0.3 else text


def test_random_patterns_match_as_in_python() -> None:
    chance, compared = random.Random(1), 0
    while compared < 20_000:
        pattern = random_pattern(chance)
        try:
            theirs = re.compile(pattern)
        except re.error:
            continue
        ours = LinearRegex(pattern)
        for _ in range(6):
            text = "".join(chance.choice("ab1.c_ ") for _ in range(chance.randint(1, 6)))
            assert ours.matches(text) == bool(theirs.fullmatch(text)), (pattern, text)
            compared += 1


def test_nested_repetitions_take_linear_time() -> None:
    assert not LinearRegex("((a+)+)+b").matches("a" * 20_000)
    assert LinearRegex("(a|a?)*b").matches("a" * 20_000 + "b")
    assert not LinearRegex(".*a.*a.*a.*a.*a.*a.*b").matches("a" * 20_000)


@pytest.mark.parametrize(
    "pattern",
    [
        "((((((a{99}){99}){99})*)))",
        "(?i)a",
        "(?i:a)",
        "(?=a)b",
        "(?<!a)b",
        r"(a)\1",
        "(" * 5000 + ")" * 5000,
        "a{0,65534}",
        "[",
        "a" * 20_001,
    ],
)
def test_unsupported_patterns_are_refused_at_once(pattern: str) -> None:
    with pytest.raises(ConfigError, match="cannot be matched"):
        LinearRegex(pattern)
