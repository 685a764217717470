"""`tour_example`: what the steps of a tour compute in the bundled model, for pages without weights.

Its numbers are those of `watch`; a test compares them, and writes them anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, sqrt
from pathlib import Path
from typing import Any

from ....analysis.learn.tour.tour import Stop, tour_of
from ....embedded import path as embedded_path
from ....loading import load_family
from ....utils.number_format import short_count

EXAMPLE_FILE = Path(__file__).with_name("tour_example.json")
SHOWN_NUMBERS = 3
"""Of each result, the first ones."""
TEMPERATURES = (1, 0.5, 2)
_SHOWN_KEYS = 4
_SHOWN_TOKENS = 4
_MIXED_KEYS = 3
_BESIDE_FORMULA = {"gate_up", "norm"}
"""Stops whose title does not say what is computed."""

Table = Mapping[str, Any]


@cache
def tour_example() -> Mapping[str, Any]:
    """Return the model, and by their stops what the steps computed: `Example` in
    web/src/views/tour/tour_example.tsx.
    """
    model = load_family(embedded_path())
    found = json.loads(EXAMPLE_FILE.read_text(encoding="utf-8"))
    return {
        "model": f"the bundled model of {short_count(model.parameters.total)} parameters",
        "token": _shown(found["tokens"][-1]),
        "stops": {name: _table(*x) for name, x in _Example(found).stops().items()},
    }


def has_example(stop: Stop) -> bool:
    """Whether a stop's steps are those of the example, in other dimensions."""
    own = _own_stops().get(stop.name)
    return own is not None and stop.name in tour_example()["stops"] and _kind(stop) == own


@cache
def _own_stops() -> Mapping[str, str]:
    stops = tour_of(load_family(embedded_path()), code=False).stops
    return {x.name: _kind(x) for x in stops}


def _kind(stop: Stop) -> str:
    title = stop.title.partition(",")[0]
    text = f"{title} {stop.formula if stop.name in _BESIDE_FORMULA else ''}"
    return re.sub(r"[\d.,]+", "", text)


def _table(says: str, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
    return {"says": says, "columns": list(columns), "rows": [list(x) for x in rows]}


class _Example:
    """The tables of the stops."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.found, self.numbers = found, found["numbers"]
        self.tokens = [_shown(x) for x in found["tokens"]]
        self.token, self.last = self.tokens[-1], len(self.tokens) - 1
        self.scores = [x / sqrt(found["head_dim"]) for x in found["products"]]
        self.shares = softmax(self.scores)
        self.where = f"layer {found['layer']}, head {found['head']}"

    def stops(self) -> Mapping[str, tuple[str, Iterable[str], Iterable[Sequence[str]]]]:
        """Return what is said, and the columns and rows of a table, by stop."""
        x, found = self.numbers, self.found
        places = ["", *(f"[{i}]" for i in range(SHOWN_NUMBERS))]
        normed = [y / found["rms"] for y in x["x"]]
        pairs, likely = found["pairs"], found["likely"][:_SHOWN_TOKENS]
        return {
            "token": (
                f"the last of {len(self.tokens)}; {self.tokens[0]} is the beginning of a text",
                ("token", "id"),
                [(x, str(y)) for x, y in zip(self.tokens, found["ids"], strict=True)],
            ),
            "embedding": (
                f"its id {found['ids'][-1]} picks this row of {found['width']} numbers",
                places,
                [self._row("x")],
            ),
            "norm": (
                f"the root mean square of its {found['width']} numbers is {_short(found['rms'])}",
                places,
                [
                    self._row("x"),
                    ("x / rms", *map(_short, normed)),
                    self._row("norm", "x / rms · w"),
                ],
            ),
            "qkv": (
                f"{self.where} with its KV head {found['kv_head']}",
                places,
                [self._row(y) for y in ("q", "k", "v")],
            ),
            "rope": (
                f"{self.where}: pairs of q, turned by position {self.last}",
                ("pair", "angle", "before", "after"),
                [
                    (str(i), f"{angle:.0f}°", _list(before), _list(after))
                    for i, angle, before, after in pairs
                ],
            ),
            "scores": (
                f"{self.where}. Divided by √{found['head_dim']} two keys share it; the last "
                "column is softmax without the division: one key alone",
                ("key of", "q·k", f"/ √{found['head_dim']}", "softmax", "if not divided"),
                list(self._scores()),
            ),
            "softmax": (
                f"{self.where}. A row reads the tokens of its cells, each named at the diagonal",
                [" ".join(str(round(100 * y)) for y in row) for row in found["shares"]],
                (),
            ),
            "mix": (
                f"{self.where}: the values of {len(self.tokens)} tokens, each times its share",
                ("value of", "share", *places[1:]),
                [
                    *(
                        (self._key(i), _percent(self.shares[i]), *map(_short, found["values"][i]))
                        for i in self._most(_MIXED_KEYS)
                    ),
                    ("all: y", "100 %", *map(_short, x["mix"])),
                ],
            ),
            "attention_out": (
                "after layer 0's attention",
                places,
                [
                    self._row("x"),
                    self._row("o", "W_o y"),
                    self._row("after_attention", "their sum"),
                ],
            ),
            "gate_up": (
                "layer 0",
                places,
                [
                    self._row("gate"),
                    ("silu(gate)", *(_short(y / (1 + exp(-y))) for y in x["gate"])),
                    self._row("up"),
                    self._row("act", "their product a"),
                ],
            ),
            "down": (
                "the end of layer 0",
                places,
                [
                    self._row("after_attention", "x"),
                    self._row("down", "W_down a"),
                    self._row("after_layer", "their sum"),
                ],
            ),
            "logits": (
                f"after it, the {_SHOWN_TOKENS} largest of {found['vocab']}",
                ("next", "logit"),
                [(_shown(y), _short(logit)) for y, logit, _ in likely],
            ),
            "next_token": (
                "after it; a high temperature flattens the choice",
                ("next", *(f"temperature {y:g}" for y in TEMPERATURES)),
                [(_shown(y), *map(_percent, shares)) for y, _, shares in likely],
            ),
        }

    def _row(self, name: str, says: str = "") -> Sequence[str]:
        return (says or name, *map(_short, self.numbers[name]))

    def _key(self, i: int) -> str:
        return f"{i} {self.tokens[i]}"

    def _most(self, count: int) -> Sequence[int]:
        return sorted(range(len(self.shares)), key=lambda i: -self.shares[i])[:count]

    def _scores(self) -> Iterator[Sequence[str]]:
        products = self.found["products"]
        sharp = softmax(products)
        for i in self._most(_SHOWN_KEYS):
            numbers = (_short(products[i]), _short(self.scores[i]))
            yield self._key(i), *numbers, _percent(self.shares[i]), _percent(sharp[i])


def softmax(scores: Sequence[float]) -> list[float]:
    """Return the shares of scores."""
    most = max(scores)
    powers = [exp(x - most) for x in scores]
    return [x / sum(powers) for x in powers]


def _shown(token: str) -> str:
    return token.replace(" ", "·")


def _short(x: float) -> str:
    return f"{x:.{1 if abs(x) >= 10 else 2}f}".replace("-", "−")


def _list(numbers: Iterable[float]) -> str:
    return ", ".join(map(_short, numbers))


def _percent(share: float) -> str:
    if share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.{0 if 0.0995 <= share <= 0.9945 else 1}f} %"
