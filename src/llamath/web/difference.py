"""The difference of two models as data for the page: causes, aligned weights, configurations."""

from __future__ import annotations

from typing import Any

from ..errors import safe
from ..show.diff import value
from ..show.why import label, where
from ..views.causes import METHOD
from ..views.diff import Difference, Entry


def difference(found: Difference) -> dict[str, Any]:
    """What the page shows of two models at once."""
    return {
        "totals": [str(x) for x in found.total],
        "delta": str(found.delta),
        "method": METHOD,
        "causes": [
            {
                "label": safe(label(x)),
                "where": where(x),
                "delta": str(x.delta),
                "parts": [{"path": y.path, "layers": "" if y.layers is None else str(y.layers), "delta": str(y.delta)} for y in x.parts],
            }
            for x in found.causes
        ],
        "weights": [
            {"path": x.path, "group": x.group or "other", "a": _entry(x.a), "b": _entry(x.b), "delta": str(x.delta)} for x in found.weights
        ],
        "shared": {"weights": [safe(x) for x in found.same], "parameters": str(found.shared)},
        "config": [{"key": safe(x.key), "a": safe(value(x, 0), 500), "b": safe(value(x, 1), 500), "moves": x.group} for x in found.config],
        "agreed": [safe(x) for x in found.agreed],
    }


def _entry(x: Entry | None) -> dict[str, Any] | None:
    if x is None:
        return None
    return {
        "shape": [str(n) for n in x.shape],
        "dims": list(x.dims),
        "copies": str(x.copies),
        "parameters": str(x.parameters),
        "tied": x.tied,
    }
