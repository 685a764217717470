"""The texts that the page can copy: the output of `count` and `diff`, and the parts of `count --json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...analysis.count.count_report import CountReport, weight_entry
from ...analysis.diff.model_diff import DiffReport
from ...core.tree import LETTERS, Block, Leaf, Stack, Weight, fold
from ...model import Model
from ...render.csv_rows import folded_rows
from ...render.table import unstyled
from ...render.text.count_text import count_text
from ...render.text.diff_text import diff_markdown, diff_text

MAX_LISTED_WEIGHTS = 200_000
"""Models with more weights have no JSON to copy."""


def model_texts(model: Model) -> dict[str, Any]:
    """Return the texts of one model."""
    with unstyled():
        text = count_text(model)
    few = sum(int(x.copies) for x in fold(model.tree)) <= MAX_LISTED_WEIGHTS
    return {"text": text, "markdown": "\n".join(folded_rows(model, None, None, "markdown")), "json": _parts(model) if few else None}


def diff_texts(found: DiffReport) -> dict[str, Any]:
    """Return the texts of a difference."""
    with unstyled():
        text = diff_text(found)
    return {"text": text, "markdown": "\n".join(diff_markdown(found)), "json": json.dumps(found.to_json())}


def _parts(model: Model) -> dict[str, Any]:
    """Return `count --json` before and after its list of weights, each distinct weight once, and their order.

    In the order, a number is a weight and a list holds runs: the blocks of a pattern, and how often the pattern is repeated.
    """
    about = CountReport(model=model).to_json(weights=False)
    names = list(about)
    at = names.index("weights")
    before, after = ({name: about[name] for name in part} for part in (names[:at], names[at + 1 :]))
    places: dict[tuple[str, int], int] = {}
    order = [y for name, child in model.tree.children for y in _order(child, name, places)]
    first = {(x.pattern, id(x.weight)): x for x in _leaves(model)}
    weights = [weight_entry(model, first[key]) for key in places]
    return {"before": json.dumps(before), "after": json.dumps(after), "weights": [_weight(x) for x in weights], "order": order}


def _weight(x: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in x.items() if name not in ("path", "names")}
    return {"path": x["path"], "rest": json.dumps(rest), "names": [[name, value] for name, value in x["names"].items()]}


def _leaves(model: Model) -> Iterator[Leaf]:
    return (Leaf(x.pattern, (), x.weight, x.group) for x in fold(model.tree))


def _order(child: Weight | Block | Stack, path: str, places: dict[tuple[str, int], int]) -> Iterator[Any]:
    if isinstance(child, Weight):
        yield places.setdefault((path, id(child)), len(places))
    elif isinstance(child, Block):
        for inner, x in child.children:
            yield from _order(x, f"{path}.{inner}", places)
    else:
        depth = sum(letter in path for letter in LETTERS)
        start = f"{path}.{LETTERS[depth]}"
        made = {id(x): [y for inner, z in x.children for y in _order(z, f"{start}.{inner}", places)] for x, _ in child.distinct()}
        yield [[[made[id(x)] for x in pattern], int(times)] for pattern, times in child.runs]
