"""The closed forms of common families, with which each exported page opens their configs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..loading import load
from ..model import FamilyModel
from .forms.design_data import build_design

_EXAMPLES = ("llama-3-8b", "mistral-7b", "qwen2-7b", "qwen3-8b", "gemma-7b")
"""A model of each family."""


def with_family_designs(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a page with the forms of families that its models do not have."""
    own = {design_structure(x["design"]) for x in data["models"] if x["design"]["letters"]}
    known = [x for x in family_designs() if design_structure(x["design"]) not in own]
    like, values = data["settings"]["like"]
    settings = data["settings"] | {"like": (like, [*values, *(x["like"] for x in known)])}
    return {name: x for name, x in data.items() if name != "models"} | {
        "settings": settings,
        "known": known,
        "models": data["models"],
    }


@cache
def family_designs() -> tuple[dict[str, Any], ...]:
    """Return the forms of each family, with the name of its model."""
    found = []
    for x in _EXAMPLES:
        model = load(x)
        assert isinstance(model, FamilyModel)
        design = build_design(model)
        found.append({"like": design["type"], "name": model.name, "design": design})
    return tuple(found)


def design_structure(design: Mapping[str, Any]) -> str:
    """Return what decides which configs a design counts, and its letters, as text."""
    neutral = set(design["neutral"])
    fixed = [
        [x["key"], x["text"]]
        for x in design["config"]
        if x["form"] is None and x["key"] not in neutral
    ]
    letters = [[x["letter"], x["key"], x["absent"]] for x in design["letters"]]
    return json.dumps(
        [
            design["type"],
            sorted(fixed),
            letters,
            design["defaults"],
            design["neutral"],
            design["tied"] is None,
        ]
    )
