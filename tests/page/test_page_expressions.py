"""The page evaluates and writes the same expressions as Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamath.core.expr import Expr, Json, maximum, minimum
from llamath.web.page_data.ui_strings import UI_STRINGS
from llamath.web.server.page_html import page_from_data
from support.browser_page import NARROW, Tab, browser, computed
from support.page_expressions import expression_from_json, expressions_in
from support.page_models import as_made, data_of

assert browser
PRESETS = (
    "llama-3-8b",
    "deepseek-v3",
    "gemma-3-27b",
    "qwen3-next-80b-a3b",
    "llama-4-scout",
    "gpt2",
    "nemotron-3-nano-30b",
)
POINTS = 12
LARGEST = {"T": 2**33, "B": 2**14, "TP": 64, "chunk": 2**14}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """The page's data of the first preset, with the expressions of all of them."""
    return as_made(data_of(PRESETS[0]) | {"models": [data_of(x)["models"][0] for x in PRESETS]})


def random_points(
    expressions: list[Json], rng: random.Random
) -> Iterator[tuple[int, dict[str, int], int]]:
    """Yield the index of an expression, values of its variables, and its value."""
    for i, x in enumerate(expressions):
        found = expression_from_json(x)
        for _ in range(POINTS):
            at = {name: int(LARGEST.get(name, 2**40) ** rng.random()) for name in found.variables}
            yield i, at, found.evaluate(**at)


def test_page_evaluates_expressions_as_python_does(
    browser: Any, tmp_path: Path, data: dict[str, Any]
) -> None:
    expressions = list({str(x): x for x in expressions_in(data["models"])}.values())
    points = list(random_points(expressions, random.Random(14)))
    assert len(expressions) > 1000 and len(points) > 10_000
    asks = [[i, {name: str(n) for name, n in at.items()}] for i, at, _ in points]
    with Tab(browser, tmp_path, page_from_data(data), width=NARROW) as tab:
        answers = computed(
            tab,
            "(all, asks) => asks.map(([i, at]) => pageTest.evaluate(all[i], at))",
            expressions,
            asks,
        )
    wrong = [
        (expressions[i], at, n, answer)
        for (i, at, n), answer in zip(points, answers, strict=True)
        if str(n) != answer
    ]
    assert not wrong, wrong[:3]


def test_numbers_beyond_2_to_the_53_stay_exact(
    browser: Any, tmp_path: Path, data: dict[str, Any]
) -> None:
    T, huge = Expr.variable("T", 1), 10**25 + 7
    asked = [
        (huge * T + 1, 3),
        (minimum(T, huge), huge + 1),
        (maximum(2 - T, -5), 9),
        (Expr("L", huge) * T, 2**53 + 1),
    ]
    with Tab(browser, tmp_path, page_from_data(data), width=NARROW) as tab:
        asks = [[x.to_expression_json(), {"T": str(n)}] for x, n in asked]
        answers = tab.evaluate("(asks) => asks.map(([x, at]) => pageTest.evaluate(x, at))", asks)
    assert answers == [str(x.evaluate(T=n)) for x, n in asked]


def test_symbols_of_settings_are_no_letters_of_a_model() -> None:
    settings = {*UI_STRINGS["letters"], *UI_STRINGS["symbols"]}
    for slug in PRESETS:
        model = data_of(slug)["models"][0]
        used: dict[str, set[int]] = {}
        for letter, n in (y for x in expressions_in(model) for y in letters_in(x)):
            used.setdefault(letter, set()).add(n)
        assert all(len(values) == 1 for values in used.values()), (slug, used)
        known = {x["letter"] for x in model["letters"]}
        assert not known & settings, slug
        # E and k are also those of the variant with experts
        assert used.keys() <= known | {"chunk", "k", "E"}, (slug, used.keys() - known)


def letters_in(x: Json) -> Iterator[tuple[str, int]]:
    """Yield the letters of an expression with their values."""
    if isinstance(x, list):
        if x[0] == "let":
            yield x[1], int(x[2])
        for y in x[1:]:
            yield from letters_in(y)
