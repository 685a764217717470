"""A difference as JSON, CSV and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...analysis.diff.causes import METHOD, Cause
from ...analysis.diff.model_diff import ModelDiff, WeightEntry, WeightPair
from ...core.number_format import format_signed
from ...model import Model
from ..csv_rows import format_table
from .cause_text import cause_label, cause_weights
from .diff_text import format_setting


def diff_json(a: Model, b: Model, found: ModelDiff) -> dict[str, Any]:
    """The contract: `a`, `b`, `total`, `causes`, `weights` and `config`; fields are added, never renamed."""
    return {
        "a": a.name,
        "b": b.name,
        "total": {"a": found.total[0], "b": found.total[1], "delta": found.delta},
        "causes": [_cause(x) for x in found.causes],
        "weights": [_pair(x) for x in found.weights],
        "config": [
            {"key": x.key, "a": x.a, "b": x.b, "moves": x.moves, "default": {"a": x.absent[0], "b": x.absent[1]}} for x in found.config
        ],
        "same": {"weights": list(found.same), "parameters": found.shared, "config": list(found.agreed)},
        "method": METHOD,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "cause": cause.cause,
        "delta": cause.delta,
        "where": cause_weights(cause),
        "kind": cause.kind,
        "a": cause.a,
        "b": cause.b,
        "parts": [{"path": x.path, "layers": x.layers, "delta": x.delta} for x in cause.parts],
    }


def _pair(pair: WeightPair) -> dict[str, Any]:
    a, b = pair.a, pair.b
    return {
        "path": pair.path,
        "a": a and list(a.shape),
        "b": b and list(b.shape),
        "delta": pair.delta,
        "group": pair.group,
        "dims": {"a": a and list(a.dims), "b": b and list(b.dims)},
        "copies": {"a": a.copies if a else 0, "b": b.copies if b else 0},
        "parameters": {"a": a.parameters if a else 0, "b": b.parameters if b else 0},
        "tied": {"a": bool(a and a.tied), "b": bool(b and b.tied)},
    }


def many_json(models: Sequence[Model], found: Sequence[ModelDiff]) -> dict[str, Any]:
    """Several models, each against the first."""
    totals = [{"name": models[0].name, "parameters": found[0].total[0], "delta": 0}]
    totals += [{"name": x.name, "parameters": y.total[1], "delta": y.delta} for x, y in zip(models[1:], found, strict=True)]
    pairs = [diff_json(models[0], x, y) for x, y in zip(models[1:], found, strict=True)]
    return {"against": models[0].name, "models": totals, "differences": pairs}


WEIGHTS = ("group", "weight", "a shape", "b shape", "a copies", "b copies", "a", "b", "difference")


def diff_csv(found: ModelDiff) -> Iterator[str]:
    """Matrix by matrix; the last column sums to the difference."""
    return format_table(WEIGHTS, (_row(x) for x in found.weights), "csv")


def diff_markdown(a: Model, b: Model, found: ModelDiff) -> Iterator[str]:
    """Three tables: why, matrix by matrix, and the configuration."""
    yield f"**{_plain(a.name)} → {_plain(b.name)}: {format_signed(found.delta)}** ({found.total[0]:,} → {found.total[1]:,})"
    yield ""
    yield from format_table(
        ("cause", "difference", "where"), ((cause_label(x), format_signed(x.delta), cause_weights(x)) for x in found.causes), "markdown"
    )
    yield ""
    yield from format_table(WEIGHTS, (_row(x) for x in found.weights), "markdown")
    yield ""
    rows = ((x.key, format_setting(x, 0), format_setting(x, 1), x.moves) for x in found.config)
    yield from format_table(("key", _plain(a.name), _plain(b.name), "moves"), rows, "markdown")
    yield ""
    yield METHOD


def _row(pair: WeightPair) -> tuple[str, ...]:
    a, b = pair.a, pair.b
    counts = (str(x.copies if x else 0) for x in (a, b))
    sums = (str(x.parameters if x else 0) for x in (a, b))
    return pair.group, pair.path, _shape(a), _shape(b), *counts, *sums, str(pair.delta)


def _shape(entry: WeightEntry | None) -> str:
    return "" if entry is None else "×".join(map(str, entry.shape)) + (" tied" if entry.tied else "")


def _plain(name: str) -> str:
    """A name that starts no markup."""
    return "".join(f"&#{ord(x)};" if x in "|*_`<>[]&#\\" else x for x in name)
