"""The closed forms of all families with published models, with which each exported page opens their
configs.

They are in `family_forms.json`, which `tools/family_forms.py` writes: one form for all models that
differ in nothing but dimensions, and each expression once.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ...catalog import slugs
from ...core.expr import Json
from ...loading import load
from ...model import FamilyModel
from ..page_data.file_formats import file_formats
from .cache_form import evaluated
from .design_data import build_design
from .family_form import TIED
from .followed_keys import context_key

FORMS_FILE = os.path.join(os.path.dirname(__file__), "family_forms.json")
_WITHOUT_MEANING = ("torch_dtype", "dtype")


def with_family_forms(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a page with the forms of all families."""
    known = family_forms()
    like, values = data["settings"]["like"]
    names = [*values, *(x["like"] for x in _in_order(known))]
    settings = data["settings"] | {"like": (like, names)}
    first = {name: x for name, x in data.items() if name != "models"}
    return first | {"settings": settings, "known": known, "models": data["models"]}


@cache
def family_forms() -> dict[str, Any]:
    """Return the forms of all families: `pool` has their expressions, in which a number is how far
    back another one stands, `forms` the designs, like ones together, and `order` their places.
    """
    with open(FORMS_FILE, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def build_family_forms() -> dict[str, Any]:
    """Return the forms of all families with published models, from their builders; `others` are
    the keys that a builder reads and no form has.
    """
    pool = _Pool()
    read = set[str]()
    forms: dict[str, dict[str, Any]] = {}
    types = set[str]()
    for slug in slugs():
        model = load(slug)
        if isinstance(model, FamilyModel):
            read |= model.config.keys_read
        if not isinstance(model, FamilyModel) or any(
            read_dimensions(model.config.data, x["design"]) for x in forms.values()
        ):
            continue
        design = build_design(model, is_sized=True) | {"context": context_key(model)}
        if not design["letters"]:
            continue
        structure = design_structure(design)
        like = slug if design["type"] in types else design["type"]
        types.add(design["type"])
        forms[structure] = {"like": like, "name": model.name, "design": _short(design)}
    decided: dict[str, set[str]] = {}
    for x in forms.values():
        design = x["design"]
        keys = {y["key"] for y in design["config"] if y["form"] is None}
        decided.setdefault(design["type"], set()).update(keys.difference(design["neutral"]))
    for x in forms.values():  # a key that decides in one model is none without effect in another
        design = x["design"]
        design["neutral"] = [y for y in design["neutral"] if y not in decided[design["type"]]]
    order = _by_likeness([json.dumps(x) for x in forms.values()])
    every = list(forms.values())
    packed = [pool.pack(every[i]) for i in order]
    others = sorted(read.difference(*(_keys_of(x["design"]) for x in every)))
    return {"pool": pool.nodes, "order": order, "forms": packed, "others": others}


def _keys_of(design: Mapping[str, Any]) -> set[str]:
    """Return the keys that a design has."""
    named = (x["key"] for part in ("letters", "config", "defaults") for x in design[part])
    of_cache = (x[0] for part in ("keys", "windows") for x in design["cache"].get(part, ()))
    return {*named, *of_cache, *design["neutral"]}


def _by_likeness(texts: Sequence[str]) -> list[int]:
    """Return the places of texts in an order in which each is followed by the one that is
    compressed best after it: compression looks back 32 kB.
    """
    left = dict(enumerate(x.encode() for x in texts))
    alone = {i: len(zlib.compress(x)) for i, x in left.items()}
    order, last = [], b""
    while left:
        more = {i: len(zlib.compress(last + x)) - alone[i] for i, x in left.items()}
        order.append(min(more, key=more.__getitem__))
        last = left.pop(order[-1])
    return order


def _in_order(known: Mapping[str, Any]) -> list[Any]:
    """Return the forms in their order."""
    pairs = zip(known["order"], known["forms"], strict=True)
    return [x for _, x in sorted(pairs, key=lambda pair: pair[0])]


def read_dimensions(config: Mapping[str, Any], design: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the letters of a configuration as a form reads them, like the page; None if the form
    does not count it.
    """
    if config.get("model_type") != design["type"]:
        return None
    given = {x["letter"]: config.get(x["key"]) for x in design["letters"]}
    found = {x: n for x, n in given.items() if type(n) is int and n > 0}
    absent = {x["letter"]: x["absent"]["form"] for x in design["letters"]}
    if any(x not in found and (n is not None or absent[x] is None) for x, n in given.items()):
        return None
    for x in given:
        if x not in found:
            found[x] = evaluated(absent[x], found)
    skipped = {TIED, "architectures", *file_formats()["nothing"], *design["neutral"]}
    skipped |= {x["key"] for x in design["letters"]}
    own = {x["key"]: x["text"] for x in design["config"] if x["form"] is None and not x["tied"]}
    defaults = {x["key"]: x["text"] for x in design["defaults"]}
    derived = {x["key"]: x["form"] for x in design["config"] if x["form"] is not None}
    for key in {*config, *own, *defaults} - skipped:
        value = config.get(key)
        if key in derived:
            if value is not None and value != evaluated(derived[key], found):
                return None
        elif key not in config:
            if key not in defaults:
                return None
        elif (text := {**defaults, **own}.get(key)) is None or not _same(json.loads(text), value):
            return None
    return found


def _same(a: Any, b: Any) -> bool:
    """Whether two values of JSON are equal; 0 is not false."""
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _short(design: Mapping[str, Any]) -> dict[str, Any]:
    """Return a design without the keys of its own configuration that decide nothing."""
    decided = {*design["neutral"], *_WITHOUT_MEANING, *(x["key"] for x in design["defaults"])}
    decided -= {x[0] for name in ("keys", "windows") for x in design["cache"].get(name, ())}
    config = [
        x if x["form"] is None else {**x, "text": ""}
        for x in design["config"]
        if x["form"] is not None or x["tied"] or x["key"] not in decided
    ]
    return {**design, "config": config}


def design_structure(design: Mapping[str, Any]) -> str:
    """Return what decides which configs a design counts, and its letters, as text."""
    neutral = {*design["neutral"], *_WITHOUT_MEANING}
    defaults = {x["key"]: x["text"] for x in design["defaults"]}
    own = {x["key"]: x["text"] for x in design["config"] if x["form"] is None and not x["tied"]}
    values = {key: x for key, x in (defaults | own).items() if key not in neutral}
    letters = [[x["letter"], x["key"], x["absent"]] for x in design["letters"]]
    required = sorted(own.keys() - defaults.keys() - neutral)
    return json.dumps(
        [design["type"], sorted(values.items()), required, letters, design["tied"] is None]
    )


class _Pool:
    """Expressions, each once."""

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self._places: dict[str, int] = {}

    def pack(self, x: Any, is_form: bool = False) -> Any:
        """Return data with places in the pool for the expressions in it."""
        if is_form:
            return self._place(x)
        if isinstance(x, dict):
            return {key: self.pack(y, key == "form") for key, y in x.items()}
        return [self.pack(y) for y in x] if isinstance(x, list) else x

    def _place(self, x: Json | None) -> Any:
        if not isinstance(x, list):
            return str(x) if isinstance(x, int) else x
        node = [x[0], *map(self._place, x[1:])]
        text, place = json.dumps(node), len(self.nodes)
        if text not in self._places:
            self._places[text] = place
            self.nodes.append([place - y if isinstance(y, int) else y for y in node])
        return self._places[text]


def unpack(known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the forms with their expressions."""
    nodes: list[Json] = []
    for function, *rest in known["pool"]:
        nodes.append([function, *(nodes[-y] if isinstance(y, int) else y for y in rest)])

    def read(x: Any, is_form: bool = False) -> Any:
        if is_form:
            return nodes[x] if isinstance(x, int) else x
        if isinstance(x, dict):
            return {key: read(y, key == "form") for key, y in x.items()}
        return [read(y) for y in x] if isinstance(x, list) else x

    yield from map(read, _in_order(known))
