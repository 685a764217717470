"""The sliders of a model's family: its counts as expressions, its rules, and its config with placeholders for the dimensions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...analysis.diff.causes import CAUSE_TITLES
from ...config_keys import describe_key
from ...core.errors import safe
from ...model import Model
from .family_sliders import MOST, TIED, Family, Forms, Rule, absent, borne_out, family_of, forms_of, loaded, rules_of
from .forms import Form, evaluate

ORDERS = ("layer_types", "no_rope_layers", "layers_block_type", "hybrid_override_pattern")
"""Config keys that list the layers one by one; without them, the family's own order applies to any depth."""
ORDER = "L d H K h F Fe Fs E k S V C".split()
LONGEST = 60_000
"""Longer configs get no sliders."""
NOT_SO = "its total is no form of its dimensions that the library bears out: `llamath count --set KEY=VALUE` counts any of them"


def design(model: Model) -> dict[str, Any]:
    """Return the sliders of a model's family, or the reason why there are none."""
    data = {key: value for key, value in model.config.data.items() if key not in ORDERS}
    for one in (data, dict(model.config.data)):
        text = json.dumps(one)
        if len(text) <= LONGEST and (found := _design(text, model.parameters.total)) is not None:
            return found
    return {"letters": [], "why": NOT_SO}


@lru_cache(maxsize=64)
def _design(text: str, parameters: int) -> dict[str, Any] | None:
    data = json.loads(text)
    model = loaded(data)
    if model is None or model.parameters.total != parameters:
        return None
    family = family_of(data, model)
    forms: dict[bool | None, Forms] = {
        tied: forms_of(x, family) for tied in (False, True) if (x := loaded(family.config(family.values, tied)))
    }
    same = len({evaluate(x.total, family.values) for x in forms.values()}) < 2
    own = loaded(family.config(family.values))
    if own is None or not family.keys:
        return None
    own_forms = forms_of(own, family)
    kept: dict[bool | None, Forms] = {None: own_forms} if same else forms
    if not all(borne_out(family, tied, x) for tied, x in kept.items()):
        return None
    return _told(family, own, kept, tuple(rules_of(family, own_forms.total)))


def _told(family: Family, own: Model, forms: Mapping[bool | None, Forms], rules: Sequence[Rule]) -> dict[str, Any]:
    texts = {key: json.dumps(value, indent=2).replace("\n", "\n  ") for key, value in family.data.items()}
    by_key: dict[str, Form] = {**{key: letter for letter, key in family.keys.items()}, **family.bound}
    if None not in forms:
        texts.setdefault(TIED, "")
    total = forms_of(own, family).total
    moved = {**own.config.key_by_symbol, **own.count.formula.letters}.keys() - family.keys.keys() - family.follows.keys()
    return {
        "why": "",
        "type": safe(str(family.data.get("model_type"))),
        "letters": [_letter(family, total, x) for x in sorted(family.keys, key=_order)],
        "follows": [{"letter": x, "form": form} for x, form in family.follows.items()],
        "fixed": [x for x in (own.config.key_by_symbol.get(x, "") for x in sorted(moved, key=_order)) if type(family.data.get(x)) is int],
        "defaults": [{"key": key, "text": json.dumps(x)} for key, x in own.config.defaults_used.items() if isinstance(x, (bool, str))],
        "neutral": sorted(x for x in {*family.data, *own.config.keys_read} if _neutral(x, own.family.name)),
        "tied": None if None in forms else own.tree.head is None or own.parameters.total == evaluate(forms[True].total, family.values),
        "totals": [{"tied": tied, "form": x.total, "active": {"form": x.active}, "groups": _groups(x)} for tied, x in forms.items()],
        "rules": [{"form": left, "most": {"form": right}, "says": safe(says)} for left, right, says in rules],
        "config": [
            {"key": key, "form": by_key.get(key), "text": texts.get(key, ""), "tied": key == TIED and None not in forms}
            for key in {**texts, **by_key}
        ],
    }


def _neutral(key: str, family: str) -> bool:
    """Whether a key is known not to affect any weight."""
    found = describe_key(key, family)
    return found is not None and found[1].partition(":")[0].split(";")[0] in ("cache", "compute", "nothing")


def _order(letter: str) -> int:
    return ORDER.index(letter) if letter in ORDER else len(ORDER)


def _groups(found: Forms) -> list[dict[str, Any]]:
    return [{"name": name, "form": form} for name, form in found.groups.items()]


def _letter(family: Family, total: Form, letter: str) -> dict[str, Any]:
    n, twos = family.values[letter], family.values[letter] & -family.values[letter]
    step = 1 if letter in ("L", "H", "K", "E", "k", "S") else min(twos, 128 if n >= 512 else 8)
    return {
        "letter": letter,
        "key": safe(family.keys[letter]),
        "says": CAUSE_TITLES.get(letter, "experts of a token" if letter == "k" else ""),
        "value": str(n),
        "step": str(step),
        "most": str(min(max(4 * n, 16) // step * step, MOST)),
        "absent": {"form": absent(family, total, letter)},
    }
