"""Models that an edit of a page makes by more than other dimensions, each with what it changes in
the template of the page's data: the head tied or not, and experts in the place of each FFN.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.blocks import Layer
from ...core.tree import Block
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError
from ..forms.family_form import TIED

HEAD, MIXTURE = "head", "mixture"
_MIXTURE_CONFIG = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
_DENSE_TYPES = ("llama", "mistral")
"""Types whose layers may be Mixtral's but for the experts."""


def template_variants(model: FamilyModel, design: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the variants of a model by name, each of which has all of its letters."""
    if not design["letters"]:
        return
    tied = design["tied"]
    if tied is not None:
        yield from _variant(model, HEAD, {TIED: not tied})
    if model.config.data.get("model_type") in _DENSE_TYPES:
        for name, other in _variant(model, MIXTURE, {**_MIXTURE_CONFIG, TIED: bool(tied)}):
            if _without_ffns(other) == _without_ffns(model):
                yield name, other


def mixture_of(model: FamilyModel, variants: Mapping[str, FamilyModel]) -> dict[str, Any]:
    """Return the family of the mixture, and its letters that the model lacks; empty if it has
    none.
    """
    if MIXTURE not in variants:
        return {}
    config = variants[MIXTURE].config
    own = {*model.count.formula.letters, *model.config.key_by_symbol}
    values = {x: str(config.data[key]) for x, key in config.key_by_symbol.items() if x not in own}
    return {"mixture": {"like": config.data["model_type"], "values": values}}


def _variant(
    model: FamilyModel, name: str, changes: Mapping[str, Any]
) -> Iterator[tuple[str, FamilyModel]]:
    try:
        other = load_family({**model.config.data, **changes})
    except LlamathError:
        return
    made = model.replace(tree=other.tree, config=other.config, family=other.family)
    if model.count.formula.letters.items() <= made.count.formula.letters.items():
        yield name, made


def _without_ffns(model: FamilyModel) -> list[tuple[Block, int]]:
    """Return the layers without their FFNs, equal neighbors once with their number."""
    return [
        (x.replace(mlp=None) if isinstance(x, Layer) else x, times)
        for blocks, times in model.tree.layers.runs
        for x in blocks
    ]


def changes_between(own: Any, other: Any) -> Any:
    """Return what has to change in data of JSON to make others: by name, or by place in a list
    of as many items, the changes of a part; `[x]` for another value; `[]` for a part that is left
    out; `[place, n, items]` for other items in the place of n; and of named items
    `[items, changes]`, each of them the place of an own one, with its changes by place, or new.
    """
    if isinstance(own, dict) and isinstance(other, dict):
        names = [*(x for x in own if x in other), *(x for x in other if x not in own)]
        if names == list(other):
            left_out: dict[str, Any] = {x: [] for x in own if x not in other}
            return left_out | {
                x: changes_between(own[x], other[x]) if x in own else [other[x]]
                for x in names
                if x not in own or _text(own[x]) != _text(other[x])
            }
    if isinstance(own, list) and isinstance(other, list):
        texts = [[_text(x) for x in y] for y in (own, other)]
        pairs = list(zip(*texts, strict=False))
        if len(own) == len(other):
            places = (i for i, (a, b) in enumerate(pairs) if a != b)
            return {str(i): changes_between(own[i], other[i]) for i in places}
        places_of, others = _places_by_name(own), _places_by_name(other)
        if places_of.keys() & others.keys():
            return [
                [places_of.get(name, other[i]) for name, i in others.items()],
                {
                    str(i): changes_between(own[i], other[j])
                    for name, j in others.items()
                    if (i := places_of.get(name)) is not None and texts[0][i] != texts[1][j]
                },
            ]
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        ends = list(zip(texts[0][:first:-1], texts[1][:first:-1], strict=False))
        last = next((i for i, (a, b) in enumerate(ends) if a != b), len(ends))
        return [first, len(own) - first - last, other[first : len(other) - last]]
    return [other]


def _places_by_name(items: list[Any]) -> dict[str, int]:
    """Return the places of objects by their names; empty where not each has one of its own."""
    if not all(isinstance(x, dict) and isinstance(x.get("name"), str) for x in items):
        return {}
    found = {x["name"]: i for i, x in enumerate(items)}
    return found if len(found) == len(items) else {}


def _text(x: Any) -> str:
    return json.dumps(x)
