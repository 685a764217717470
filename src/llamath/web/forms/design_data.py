"""The data of the Design view: sliders, constraints and counts of a model's family."""

from __future__ import annotations

import json
from typing import Any

from ...config_keys.dimension_words import dimension_words
from ...core.expr import Expr
from ...model import FamilyModel
from ...utils.errors import safe
from .arranged_layers import LAYER_LIST_KEYS
from .family_form import (
    TIED,
    FamilyForm,
    find_form,
    has_no_effect,
)
from .traced_config import DimRead

_LETTER_ORDER = "L d H K h F Fe Fs E k S V C".split()


def build_design(model: FamilyModel, is_sized: bool = False) -> dict[str, Any]:
    """Return the sliders of a model's family, `is_sized` with the forms of what is on a GPU; none
    where the total has no closed form, as that of a multimodal model.
    """
    form = None if model.tree.is_multimodal else find_form(model, is_sized)
    return {"letters": []} if form is None else _design(model, form)


def _design(model: FamilyModel, form: FamilyForm) -> dict[str, Any]:
    keys = {*form.data, *model.config.keys_read}
    neutral = {x for x in keys if has_no_effect(x, model.family.name)}
    neutral -= {*form.deciding}
    has_tying = None not in form.by_tying
    texts = {
        key: json.dumps(value, indent=2).replace("\n", "\n  ") for key, value in form.given.items()
    }
    by_key = {x.key: Expr.variable(x.letter, x.value) for x in form.reads}
    by_key |= {key: x for key, x in form.derived.items() if key in texts}
    if has_tying:
        texts.setdefault(TIED, "")
    return {
        "type": safe(str(form.data.get("model_type"))),
        "letters": [_letter(x, form.absent.get(x.key)) for x in sorted(form.reads, key=_order)],
        "fixed": [key for key in form.fixed if type(form.data.get(key)) is int],
        "defaults": [
            *(
                {"key": key, "text": json.dumps(x)}
                for key, x in model.config.defaults_used.items()
                if isinstance(x, (bool, str)) and key != TIED
            ),
            *({"key": x, "text": texts[x]} for x in form.optional if x not in neutral),
            *(
                {"key": x, "text": json.dumps(model.config.data[x])}
                for x in LAYER_LIST_KEYS
                if x in model.config.data and x not in form.given
            ),
            *(
                {"key": TIED, "text": json.dumps(x)}
                for x in (form.tied_by_default,)
                if x is not None
            ),
        ],
        "neutral": sorted(neutral),
        "tied": form.is_tied,
        "totals": [{"tied": tied, **x.to_json()} for tied, x in form.by_tying.items()],
        "cache": {"form": None} if form.cache is None else form.cache.to_json(),
        "sizing": None if form.sizing is None else form.sizing.to_json(),
        "rules": [
            {
                "form": x.left.to_expression_json(),
                "most": {"form": x.right.to_expression_json()},
                "says": safe(x.text),
            }
            for x in form.conditions
        ],
        "config": [
            {
                "key": key,
                "form": by_key[key].to_expression_json() if key in by_key else None,
                "text": texts.get(key, ""),
                "tied": key == TIED and has_tying,
            }
            for key in {**texts, **by_key}
        ],
    }


def _order(x: DimRead) -> int:
    return _LETTER_ORDER.index(x.letter) if x.letter in _LETTER_ORDER else len(_LETTER_ORDER)


def _letter(x: DimRead, absent: Expr | None) -> dict[str, Any]:
    return {
        "letter": x.letter,
        "key": safe(x.key),
        "says": dimension_words(x.letter, x.key),
        "value": str(x.value),
        "absent": {"form": None if absent is None else absent.to_expression_json()},
    }
