"""`examples_of`: what the steps of a tour compute in a model with weights, for pages without.

Its numbers are those of `watch`; a test compares them, and writes them anew.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, sqrt
from pathlib import Path
from typing import Any

from ....analysis.learn.tour.tour import Tour, tour_of
from ....core.tree import fold_blocks
from ....embedded import path as embedded_path
from ....loading import load_family
from ....utils.number_format import short_count
from ....utils.number_marks import unmarked
from .example_numbers import TEMPERATURES, degrees, list_numbers, percent, short, softmax
from .worked_steps import ROPE_COLUMNS, kind_of, turned_by, worked_steps

EXAMPLE_FILE = Path(__file__).with_name("tour_example.json")
SHOWN_NUMBERS = 3
"""Of each result, the first ones."""
_SHOWN_KEYS = 4
_SHOWN_TOKENS = 4
_MIXED_KEYS = 3
_MORE = "…"

Table = Mapping[str, Any]


def examples_of(tour: Tour, own: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Table]:
    """Return what the steps of a tour compute, in other dimensions, so that the numbers of stops
    follow from each other: in the bundled model if it lacks one step at most, else in a small one.
    What it lacks is of another model, and says so. Of the variant of a model, whose `own` stops
    those are, the bundled one if it is that of the model. `Example` in
    web/src/views/tour/tour_example.tsx.
    """
    bundled = {
        x.name: bundled_tables()[x.name]
        for x in tour.stops
        if bundled_kinds().get(x.name) == kind_of(x) and x.name in bundled_tables()
    }
    worked = worked_steps(tour.stops, tour.model.text.config.data["model_type"])
    lacks = len(worked.keys() - bundled.keys())
    is_bundled = sum(map(is_bundled_example, own)) > len(own) / 2 if own else lacks <= _MAY_LACK
    found = {**worked, **bundled} if is_bundled else {**bundled, **worked}
    names = [x.name for x in tour.stops if x.name in found]
    return dict(_with_turns({x: found[x] for x in names}))


def _with_turns(tables: Mapping[str, Table]) -> Iterator[tuple[str, Table]]:
    """Yield the tables of stops, saying where one is of another model or layer than those before
    it.
    """
    most = Counter(x["in"] for x in tables.values()).most_common(1)
    last: int | None = None
    for name, x in tables.items():
        table = {key: y for key, y in x.items() if key != "layer"}
        layer, turn = x.get("layer"), ""
        if x["in"] != most[0][0]:
            turn = _ANOTHER
        elif layer is not None:
            turn = _LAYER.format(layer, last) if last not in (None, layer) else ""
            last = layer
        yield name, {**table, "turn": turn}


def is_bundled_example(stop: Mapping[str, Any]) -> bool:
    """Return whether the example of a stop, as the page has it, is of the bundled model."""
    return (
        stop["example"] is not None
        and stop["name"] in bundled_tables()
        and (stop["example"]["in"] == bundled_tables()[stop["name"]]["in"])
    )


_MAY_LACK = 1
_ANOTHER = "another model, as that of the other stops has no such step"
_LAYER = "layer {} of it, where the stop before was of layer {}"


@cache
def bundled_tables() -> Mapping[str, Table]:
    """Return what the steps computed in the bundled model, by their stops."""
    with unmarked():
        bundled = load_family(embedded_path())
        size = short_count(bundled.parameters.total)
        ropes = (getattr(x.block, "rope", None) for x in fold_blocks(bundled.tree))
        theta = next(x.theta for x in ropes if x is not None)
    found = json.loads(EXAMPLE_FILE.read_text(encoding="utf-8"))
    model = f"the bundled model of {size} parameters, at {_shown(found['tokens'][-1])}"
    return {name: {"in": model, **_table(*x)} for name, x in _Example(found, theta).stops().items()}


@cache
def bundled_kinds() -> Mapping[str, str]:
    """Return what the stops of the bundled model compute."""
    with unmarked():  # its dimensions are those of another model
        stops = tour_of(load_family(embedded_path()), code=False).stops
        return {x.name: kind_of(x) for x in stops}


def _table(says: str, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
    return {"says": says, "columns": list(columns), "rows": [list(x) for x in rows]}


class _Example:
    """The tables of the stops."""

    def __init__(self, found: Mapping[str, Any], theta: float) -> None:
        self.found, self.numbers, self.theta = found, found["numbers"], theta
        self.tokens = [_shown(x) for x in found["tokens"]]
        self.token, self.last = self.tokens[-1], len(self.tokens) - 1
        self.scores = [x / sqrt(found["head_dim"]) for x in found["products"]]
        self.shares = softmax(self.scores)
        self.where = f"layer {found['layer']}, head {found['head']}"

    def stops(self) -> Mapping[str, tuple[str, Iterable[str], Iterable[Sequence[str]]]]:
        """Return what is said, and the columns and rows of a table, by stop."""
        x, found = self.numbers, self.found
        places = ["", *(f"[{i}]" for i in range(SHOWN_NUMBERS)), ""]
        normed = [y / found["rms"] for y in x["x"]]
        half = found["head_dim"] // 2
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
                f"the root mean square of its {found['width']} numbers is {short(found['rms'])}",
                places,
                [
                    self._row("x"),
                    ("x / rms", *map(short, normed), _MORE),
                    self._row("norm", "x / rms · w"),
                ],
            ),
            "qkv": (
                f"{self.where} with its KV head {found['kv_head']}",
                places,
                [self._row(y) for y in ("q", "k", "v")],
            ),
            "rope": (
                f"{self.where}: pairs of channels of q, "
                f"{turned_by(self.last, self.theta, found['head_dim'])}",
                ROPE_COLUMNS,
                [
                    (f"{i}, {i + half}", degrees(angle), list_numbers(before), list_numbers(after))
                    for i, angle, before, after in pairs
                ],
            ),
            "scores": (
                f"{self.where}. Divided by √{found['head_dim']}, the scores let two keys "
                "share the attention; without the division (last column) one key takes all",
                ("key of", "q·k", f"/ √{found['head_dim']}", "softmax", "if not divided"),
                list(self._scores()),
            ),
            "softmax": (
                f"{self.where}. A row reads the tokens of its cells, each named at the diagonal",
                self.tokens,
                [[str(round(100 * y)) for y in row] for row in found["shares"]],
            ),
            "mix": (
                f"{self.where}: the values of {len(self.tokens)} tokens, each times its share",
                ("value of", "share", *places[1:]),
                [
                    *(
                        (
                            self._key(i),
                            percent(self.shares[i]),
                            *map(short, found["values"][i]),
                            _MORE,
                        )
                        for i in self._most(_MIXED_KEYS)
                    ),
                    self._others(_MIXED_KEYS),
                    ("all: y", "100%", *map(short, x["mix"]), _MORE),
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
                    ("silu(gate)", *(short(y / (1 + exp(-y))) for y in x["gate"]), _MORE),
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
            "cache": (
                f"{self.where}: a row of keys and one of values for each token; the next token "
                "adds one of each",
                ("", "key", "value"),
                [
                    (self._key(i), *map(list_numbers, (found["keys"][i], found["values"][i])))
                    for i in (0, self.last)
                ],
            ),
            "logits": (
                f"the {_SHOWN_TOKENS} largest of {found['vocab']} logits",
                ("next", "logit"),
                [(_shown(y), short(logit)) for y, logit, _ in likely],
            ),
            "next_token": (
                "a high temperature flattens the probabilities",
                ("next", *(f"temperature {y:g}" for y in TEMPERATURES)),
                [(_shown(y), *map(percent, shares)) for y, _, shares in likely],
            ),
        }

    def _row(self, name: str, says: str = "") -> Sequence[str]:
        return (says or name, *map(short, self.numbers[name]), _MORE)

    def _key(self, i: int) -> str:
        return f"{i} {self.tokens[i]}"

    def _most(self, count: int) -> Sequence[int]:
        return sorted(range(len(self.shares)), key=lambda i: -self.shares[i])[:count]

    def _scores(self) -> Iterator[Sequence[str]]:
        products = self.found["products"]
        sharp = softmax(products)
        for i in self._most(_SHOWN_KEYS):
            numbers = (short(products[i]), short(self.scores[i]))
            yield self._key(i), *numbers, percent(self.shares[i]), percent(sharp[i])
        rest, share = self._others(_SHOWN_KEYS)
        left = sum(sharp) - sum(sharp[i] for i in self._most(_SHOWN_KEYS))
        yield rest, "", "", share, percent(left)

    def _others(self, shown: int) -> tuple[str, str]:
        """Return the number of the keys that are not shown, and what they share."""
        share = 1 - sum(self.shares[i] for i in self._most(shown))
        return f"{len(self.shares) - shown} others", percent(share)


def _shown(token: str) -> str:
    return token.replace(" ", "·")
