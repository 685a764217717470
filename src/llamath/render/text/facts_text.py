"""The fact sheet as text."""

from __future__ import annotations

from textwrap import wrap

from ...analysis.fact_sheet import FactSheet, fact_rows
from ...utils.errors import safe


def facts_text(facts: FactSheet) -> str:
    """Return the description and a line for each fact; a name that repeats is written once."""
    rows = list(fact_rows(facts))
    width = max(len(name) for name, _ in rows)
    lines, last = [*wrap(f"{safe(facts.model.name)}: {facts.description}", 96), ""], ""
    for name, value in rows:
        lines.append(f"{'' if name == last else name:{width}}  {safe(value, 300)}")
        last = name
    return "\n".join(lines)
