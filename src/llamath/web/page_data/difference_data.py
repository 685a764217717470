"""The comparison of two models: causes, aligned weights and configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...analysis.diff.causes import METHOD, Cause, CausePart
from ...analysis.diff.model_diff import DiffReport, WeightEntry
from ...core.errors import safe
from ...core.number_format import format_signed
from ...render.text.diff_text import format_setting


def difference(found: DiffReport) -> dict[str, Any]:
    """Return the data of the comparison view."""
    return {
        "totals": [str(found.total.a), str(found.total.b)],
        "delta": str(found.delta),
        "method": METHOD,
        "causes": [
            {
                "label": safe(x.label),
                "where": x.where,
                "delta": str(x.delta),
                "of": list(_sums(x)),
            }
            for x in found.causes
        ],
        "weights": [
            {"path": x.path, "group": x.group or "other", "a": _entry(x.a), "b": _entry(x.b), "delta": str(x.delta)} for x in found.weights
        ],
        "shared": {"weights": [safe(x) for x in found.same.weights], "parameters": str(found.same.parameters)},
        "config": [
            {"key": safe(x.key), "a": safe(format_setting(x, 0), 500), "b": safe(format_setting(x, 1), 500), "moves": x.moves}
            for x in found.config
        ],
        "agreed": [safe(x) for x in found.same.config],
    }


def _sums(cause: Cause) -> Iterator[list[str]]:
    """Return a cause with its layers, its difference per weight, and its total."""
    if cause.a is not None and cause.b is not None:
        yield [safe(cause.cause), f"{cause.a:,} → {cause.b:,}"]
    for n in sorted({x.layers for x in cause.parts if x.layers}):
        yield ["layers that have it", f"{n:,}"]
    groups: dict[str, list[CausePart]] = {}
    for x in cause.parts:
        groups.setdefault(x.group, []).append(x)
    for parts in groups.values() if len(groups) > 1 else ():
        yield _sum(parts)
    yield _sum(cause.parts)


def _sum(parts: Sequence[CausePart]) -> list[str]:
    names = (x.path if x.layers is None else f"{x.path} of {x.layers} layers" for x in parts)
    return [" + ".join(names), " ".join(format_signed(x.delta) for x in parts), format_signed(sum(x.delta for x in parts))]


def _entry(x: WeightEntry | None) -> dict[str, Any] | None:
    if x is None:
        return None
    return {
        "shape": [str(n) for n in x.shape],
        "dims": list(x.dims),
        "copies": str(x.copies),
        "parameters": str(x.parameters),
        "tied": x.tied,
    }
