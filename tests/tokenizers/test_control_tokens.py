"""The search for added tokens finds what an alternation of their names finds, the longest first, in linear steps."""

from __future__ import annotations

import random
import re

import pytest

from llamath.tokenizers import control_tokens
from llamath.tokenizers.control_tokens import ControlTokens, token_at_start
from llamath.utils.errors import LlamathError


@pytest.mark.slow
def test_tokens_are_found_leftmost_and_longest() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        names = [
            "".join(chance.choice("ab<|") for _ in range(chance.randint(0, 12)))
            for _ in range(chance.randint(0, 6))
        ]
        text = "".join(chance.choice([*"ab<|", *names]) for _ in range(chance.randint(0, 12)))
        kept = sorted(filter(None, names), key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, kept)) or "(?!)")
        assert [*ControlTokens(names, [text]).find(text)] == [
            x.span() for x in pattern.finditer(text)
        ], (names, text)
        found = pattern.match(text)
        assert token_at_start(kept, text) == (found[0] if found else "")


@pytest.mark.slow
def test_steps_grow_linearly_with_tokens_and_text() -> None:
    for make, text in (
        (
            lambda n: ["a" * 200 + f"{i:05}" for i in range(n)],
            lambda n: "a" * (20 * n),
        ),  # names that all begin like the text
        (lambda n: [f"{i:05}" + "a" * 200 for i in range(n)], lambda n: "00001" + "a" * (20 * n)),
        (
            lambda n: ["a" * n + "b", "a"],
            lambda n: "a" * (20 * n),
        ),  # a long name that fails at its end, at each position
        (lambda n: ["a" * i for i in range(1, int(n**0.5) + 1)], lambda n: "a" * (20 * n)),
    ):
        steps = []
        for n in (500, 1000, 2000):
            tokens = ControlTokens(make(n), [text(n)])
            sum(1 for _ in tokens.find(text(n)))
            steps.append(tokens.steps)
        assert steps[2] <= 2.3 * steps[1] <= 5.3 * steps[0], steps


@pytest.mark.slow
def test_names_that_a_text_cannot_have_cost_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"<|audio_{i}|>" for i in range(100_000)]
    assert not ControlTokens(names, ["<|im_start|>user\n"])._after
    monkeypatch.setattr(control_tokens, "_MAX_CHARACTERS", 1000)
    with pytest.raises(LlamathError, match="added tokens of at most 1,000 characters"):
        ControlTokens(names, ["".join(names[:1000])])
