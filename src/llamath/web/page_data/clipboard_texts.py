"""The texts that the page can copy: the output of `count` and `diff`, and the parts of `count
--json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...analysis.understand.count.count_report import CountReport, weight_entry
from ...analysis.understand.diff.model_diff import DiffReport
from ...core.tree import LETTERS, Block, Leaf, Stack, Weight, fold
from ...model import FamilyModel
from ...render.csv_rows import markdown_rows
from ...render.report_text import report_text
from ...render.table import unstyled

MAX_LISTED_WEIGHTS = 200_000
"""Models with more weights have no JSON to copy."""


def model_texts(model: FamilyModel) -> dict[str, Any]:
    """Return the texts of one model."""
    report = CountReport(model=model)
    with unstyled():
        text = report_text(report)
    markdown = [report.summary, *markdown_rows(report)]
    is_small = sum(int(x.copies) for x in fold(model.tree)) <= MAX_LISTED_WEIGHTS
    return {
        "text": text,
        "markdown": "\n".join(markdown),
        "json": _parts(model) if is_small else None,
    }


def diff_texts(report: DiffReport) -> dict[str, Any]:
    """Return the texts of a comparison."""
    with unstyled():
        text = report_text(report)
    return {
        "text": text,
        "markdown": "\n".join([report.summary, *markdown_rows(report)]),
        "json": _json_parts(report.to_json()),
    }


def _parts(model: FamilyModel) -> dict[str, Any]:
    """Return `count --json` before and after its list of weights, each distinct weight once, and
    their order.

    In the order, a number is a weight and a list holds runs: the blocks of a pattern, and how often
    the pattern is repeated.
    """
    report = CountReport(model=model).to_json(weights=False)
    names = list(report)
    index = names.index("weights")
    before, after = (
        {name: report[name] for name in part} for part in (names[:index], names[index + 1 :])
    )
    index_of_weight: dict[tuple[str, int], int] = {}
    order = [y for name, child in model.tree.children for y in _order(child, name, index_of_weight)]
    first = {(x.pattern, id(x.weight)): x for x in _leaves(model)}
    weights = [weight_entry(model, first[key]) for key in index_of_weight]
    return {
        "before": _json_parts(before),
        "after": _json_parts(after),
        "weights": [_weight(x) for x in weights],
        "order": order,
    }


def _weight(x: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in x.items() if name not in ("path", "names")}
    return {
        "path": x["path"],
        "rest": _json_parts(rest),
        "names": [[name, value] for name, value in x["names"].items()],
    }


def _json_parts(x: Any) -> Any:
    """Return JSON in which `{"": text}` stands for what a script would write otherwise: large or
    broken numbers, and numbers as keys.
    """
    if isinstance(x, dict) and not any(key.isdigit() or not key for key in x):
        return {key: _json_parts(y) for key, y in x.items()}
    if isinstance(x, list):
        return [_json_parts(y) for y in x]
    is_same = x is None or isinstance(x, (str, bool)) or (isinstance(x, int) and abs(x) < 2**53)
    return x if is_same else {"": json.dumps(x)}


def _leaves(model: FamilyModel) -> Iterator[Leaf]:
    return (Leaf(x.pattern, (), x.weight, x.group) for x in fold(model.tree))


def _order(
    child: Weight | Block | Stack, path: str, index_of_weight: dict[tuple[str, int], int]
) -> Iterator[Any]:
    if isinstance(child, Weight):
        yield index_of_weight.setdefault((path, id(child)), len(index_of_weight))
    elif isinstance(child, Block):
        for inner, x in child.children:
            yield from _order(x, f"{path}.{inner}", index_of_weight)
    else:
        depth = sum(letter in path for letter in LETTERS)
        start = f"{path}.{LETTERS[depth]}"
        order_of_block = {
            id(x): [
                y for inner, z in x.children for y in _order(z, f"{start}.{inner}", index_of_weight)
            ]
            for x, _ in child.distinct()
        }
        yield [
            [[order_of_block[id(x)] for x in pattern], int(times)] for pattern, times in child.runs
        ]
