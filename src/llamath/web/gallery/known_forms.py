"""The closed forms of a gallery's models as a script, which its pages load when a config is opened
there.

Pages from a disk may load scripts, and no other files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..server.page_html import compressed_json

FORMS = "assets/forms.js"
"""The script's place in a site."""


def form_of(model_id: str, name: str, design: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the closed forms of a model, from the data of its page; None if its total has none."""
    return {"id": model_id, "name": name, "design": design} if design["letters"] else None


def forms_script(forms: Sequence[Mapping[str, Any]]) -> str:
    """Return the script; of models that differ in nothing but dimensions, it has the first."""
    distinct = {_structure(x["design"]): x for x in reversed(forms)}
    return f'llamathForms="{compressed_json(list(reversed(distinct.values())))}";\n'


def _structure(design: Mapping[str, Any]) -> str:
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
