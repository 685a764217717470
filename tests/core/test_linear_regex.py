"""The matcher of regular expressions from files decides as Python's `re` does, and counts its steps."""

from __future__ import annotations

import random
import re
import warnings
from fnmatch import fnmatchcase

import pytest

from llamath.utils import linear_regex
from llamath.utils.errors import ConfigError
from llamath.utils.linear_regex import LinearRegex, PatternList
from llamath.utils.regex_syntax import wildcard_regex

ATOMS = (
    *(
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        r"\d",
        r"\w",
        "c",
        r"\.",
        r"\b",
        "^",
        "$",
        "(?:a|b)",
        "(b|)",
        "1",
        r"\B",
        r"\W",
        r"[\d.]",
        r"\s",
    ),
    *(
        "(?P<x>a)",
        "[a-c1]",
        r"\A",
        r"\Z",
        r"[^\W_]",
        r"\n",
        "é",
        "É",
        "[]a]",
        "[^]]",
        "[a-]",
        "[-a]",
        r"[\b]",
        r"\x61",
        r"\u0061",
        r"\141",
    ),
    *(
        r"\0",
        "{",
        "}",
        "x{",
        "a{,",
        "(?#x)",
        "(?i:aé)",
        "(?i:K)",
        "(?i:ı)",
        "(?i:[^ſ])",
        "(?i:[İ-ɐ])",
        "(?s:.)",
        "(?m:^)",
        "(?m:$)",
    ),
    *(r"(?a:\w)", r"(?a:\b)", "(?-i:a)", "(?:^)", "(?!)", "(?=)"),
)
REPEATS = (
    "",
    "",
    "",
    "",
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "??",
    "{1,2}",
    "{2}",
    "{2,}",
    "{,2}",
    "{0}",
    "{,}",
    "{}",
    "{1",
    "{1,2}?",
)
GROUPS = ("(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?s:", "(?m:", "(?a:", "(?i-s:")
FLAGS = ("(?i)", "(?m)", "(?s)", "(?a)", "(?im)", "(?u)", "(?is)(?m)")


def random_pattern(chance: random.Random, depth: int = 0) -> str:
    if depth == 0 and chance.random() < 0.15:  # mostly no regular expression
        return "".join(
            chance.choice("ab(|)?[]{}*+^$\\.-,12:=!<>P#imsauxL-dwb0xu ")
            for _ in range(chance.randint(1, 10))
        )
    text = ""
    for _ in range(chance.randint(min(1, 1 - depth), 5)):
        if depth < 3 and chance.random() < 0.22:
            text += f"{chance.choice(GROUPS)}{random_pattern(chance, depth + 1)})"
        else:
            text += chance.choice(ATOMS)
        text += chance.choice(REPEATS)
    text += f"|{random_pattern(chance, depth + 1)}" if chance.random() < 0.2 else ""
    return chance.choice(FLAGS) + text if not depth and chance.random() < 0.15 else text


def compiled(pattern: str) -> re.Pattern[str] | None:
    """Return Python's compiled pattern; None if it is no regular expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern)
        except (re.error, OverflowError, ValueError):
            return None


@pytest.mark.slow
def test_random_patterns_match_as_in_python() -> None:
    chance, compared, wrong, unsupported = random.Random(1), 0, [], 0
    for _ in range(3000):
        pattern = random_pattern(chance)
        theirs = compiled(pattern)
        try:
            ours = LinearRegex(pattern)
        except ConfigError as error:
            if "in linear time" in str(error) or "is not supported" in str(error):
                unsupported += 1
            elif theirs is not None:
                wrong.append((pattern, str(error)))
            continue
        if theirs is None:
            wrong.append((pattern, "accepted"))
            continue
        for _ in range(8):
            text = "".join(
                chance.choice("ab1.c_ \nAéÉkKſıi{x") for _ in range(chance.randint(0, 6))
            )
            if (
                text or r"\B" not in pattern
            ):  # which versions of Python treat differently in an empty text
                found, expected = (
                    (ours.fullmatch(text), ours.match(text)),
                    (bool(theirs.fullmatch(text)), bool(theirs.match(text))),
                )
                compared += 1
                if found != expected:
                    wrong.append((pattern, f"{text!r}: {found}"))
    assert wrong == []
    assert compared > 10_000
    assert unsupported < 300


@pytest.mark.slow
def test_lists_find_what_their_patterns_find_one_by_one() -> None:
    chance = random.Random(2)
    for _ in range(300):
        patterns = [
            x
            for _ in range(8)
            if (x := random_pattern(chance))
            and (y := compiled(x))
            and "+" not in x
            and r"\1" not in x
            and y
        ]
        theirs = [x for x in map(compiled, patterns) if x is not None]
        try:
            ours = PatternList(patterns)
        except ConfigError:
            continue
        for _ in range(10):
            text = ".".join(
                "".join(chance.choice("ab1_A\n") for _ in range(chance.randint(0, 3)))
                for _ in range(chance.randint(1, 4))
            )
            if text or not any(r"\B" in x for x in patterns):
                assert ours.first_match(text) == next(
                    (i for i, x in enumerate(theirs) if x.match(text)), None
                ), (patterns, text)
                assert ours.full_matches(text) == {
                    i for i, x in enumerate(theirs) if x.fullmatch(text)
                }, (patterns, text)
                parts = text.split(".")
                parents = (".".join(parts[: i + 1]) for i in range(len(parts)))
                assert [*ours.match_parents(text)] == [
                    any(x.fullmatch(y) for x in theirs) for y in parents
                ], (patterns, text)


@pytest.mark.slow
def test_characters_without_case_are_those_of_python() -> None:
    chance = random.Random(3)
    cased = [x for x in map(chr, range(0x20000)) if x.lower() != x or x.upper() != x]
    for char in (*"iIkKsSßẞµμΣσςſıİǅ\u0345ΐΐ", *chance.sample(cased, 60)):
        for pattern in (
            re.escape(char),
            f"[{re.escape(char)}]",
            f"(?a:{re.escape(char)})",
            f"[^{char}-{char}]",
            r"[\w]",
        ):
            theirs, ours = re.compile(f"(?i){pattern}"), LinearRegex(f"(?i){pattern}")
            for other in {
                *char.lower(),
                *char.upper(),
                *char.title(),
                *char.casefold(),
                *char.swapcase(),
                *chance.sample(cased, 20),
            }:
                assert ours.fullmatch(other) == bool(theirs.fullmatch(other)), (pattern, other)


@pytest.mark.slow
def test_wildcards_match_as_in_fnmatch() -> None:
    chance = random.Random(4)
    for _ in range(2000):
        pattern = "".join(chance.choice("ab-!]][*?^\\.&~|\n") for _ in range(chance.randint(0, 9)))
        regex = LinearRegex(wildcard_regex(pattern))
        for _ in range(4):
            text = "".join(chance.choice("ab-!][^\\.&~|\n") for _ in range(chance.randint(0, 4)))
            assert regex.fullmatch(text) == fnmatchcase(text, pattern), (pattern, text)


def test_lookarounds_that_people_publish_are_matched() -> None:
    names = (
        "model.visual.blocks.0.attn.q_proj",
        "model.layers.0.self_attn.q_proj",
        "model.layers.10.mlp.gate_proj",
        "lm_head",
    )
    for pattern in (
        r"^(?!.*(visual|vision)).*(q|k|v)_proj$",
        r"model\.layers\.(?!0\.)\d+\.mlp\..*",
        r".*(?<!gate)_proj",
        r"(?=.*layers)(?!.*mlp).*_proj",
        r"^(?:(?!visual).)*_proj$",
    ):
        for name in names:
            assert LinearRegex(pattern).match(name) == bool(re.match(pattern, name)), (
                pattern,
                name,
            )


@pytest.mark.parametrize(
    "pattern",
    [
        "((((((a{99}){99}){99})*)))",
        "(?:(?:(?:(?:){60000}){60000}){60000}){60000}",
        "(?>a)b",
        "a++b",
        "(?x)a",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "(a)?(?(1)b|c)",
        "(" * 5000 + ")" * 5000,
        "a{0,200000}",
        "[",
        "a" * 20_001,
        "a{4294967295}",
        "(?<=a+)b",
    ],
)
@pytest.mark.slow
def test_unsupported_patterns_are_refused_at_once(pattern: str) -> None:
    with pytest.raises(ConfigError, match="cannot be matched"):
        LinearRegex(pattern)


HARD: dict[str, tuple[str, str]] = {
    "nested": ("((a+)+)+b", "a"),
    "optional": ("(?:a?){20}b", "a"),
    "of the review": ("(?:[a-z._0-9]?){22}!", "a.0"),
    "alternatives": ("(a|a?)*b", "a"),
    "many": (".*a.*a.*a.*a.*a.*a.*b", "a"),
    "lookahead": ("(?:(?!.*c)a)*b", "a"),
    "lookbehind": ("(?:(?<=aa)a|a)*b", "a"),
    "dotted": (r"(?:a\.|a)*!", "a."),
}


@pytest.mark.slow
def test_steps_grow_linearly_with_text_and_with_patterns() -> None:
    for name, (pattern, text) in HARD.items():
        steps = []
        for n in (500, 1000, 2000):
            regex = LinearRegex(pattern)
            assert not regex.fullmatch(text * n)
            steps.append(regex.steps)
        assert steps[2] <= 2.2 * steps[1] <= 5 * steps[0] + 5000, (name, steps)
    for make in (
        lambda i: ".*" * 100 + str(i),
        lambda i: f"(?:[a-z]?){{20}}{i}!",
        lambda i: f"model.layers.{i}.*|x{i}",
    ):
        states = [_states_of([make(i) for i in range(n)]) for n in (100, 200, 400)]
        assert states[2] <= 2.3 * states[1] <= 5.3 * states[0], states


def _states_of(patterns: list[str]) -> int:
    return PatternList(patterns)._budget.states


@pytest.mark.slow
def test_a_list_shares_one_limit_of_states_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="more than 200,000 states"):
        PatternList(f"{i}" + "[ab]?" * 3000 for i in range(100))
    monkeypatch.setattr(linear_regex, "MAX_STEPS", 100_000)
    patterns = PatternList(f"(?:.*{i}){{9}}" for i in range(1000))
    with pytest.raises(ConfigError, match="take more than 100,000 steps to match"):
        for i in range(10_000):
            patterns.full_matches(f"{i:014b}" * 10)
    assert patterns.steps < 200_000
