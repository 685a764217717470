"""The closed forms of a gallery's models as a script, which its pages load when a config is opened
there.

Pages from a disk may load scripts, and no other files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..forms.page_forms import design_structure, family_forms
from ..server.page_html import compressed_json

FORMS = "assets/forms.js"
"""The script's place in a site."""


def form_of(model_id: str, name: str, design: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the closed forms of a model, from the data of its page; None if its total has none."""
    return {"id": model_id, "name": name, "design": design} if design["letters"] else None


def forms_script(forms: Sequence[Mapping[str, Any]]) -> str:
    """Return the script; of models that differ in nothing but dimensions, it has the first, and
    then the forms of all families.
    """
    distinct = {design_structure(x["design"]): x for x in reversed(forms)}
    data = {"own": list(reversed(distinct.values())), "known": family_forms()}
    return f'llamathForms="{compressed_json(data)}";\n'
