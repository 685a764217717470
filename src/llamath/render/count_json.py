"""The contract of `--json`: fields are added, never renamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..checkpoint.naming.scheme import Scheme, Unnamed
from ..core.errors import LlamathError
from ..core.tree import Leaf, fill_pattern, fold
from ..model import Model

MOST = 2_000_000
"""So many weights are listed at the most; the folded table has no limit."""


def listable(model: Model) -> None:
    """Refuse to list what no memory holds."""
    leaves = sum(int(x.copies) for x in fold(model.tree))
    if leaves > MOST:
        raise LlamathError(f"{leaves:,} weights are too many to list (at most {MOST:,})", hint="the folded table counts them all exactly")


def count_json(model: Model) -> dict[str, Any]:
    """What `llamath count --json` prints."""
    listable(model)
    return {**count_json_about(model), "weights": list(_weights(model))}


def count_json_about(model: Model) -> dict[str, Any]:
    """The same without the weights, whose place is kept."""
    report = model.count
    p = report.parameters
    parameters: dict[str, Any] = {name: getattr(p, name) for name in p.fields} | {"extras": dict(p.extras)}
    return {
        "model": model.name,
        "family": model.family.name,
        "source": model.source,
        "parameters": parameters,
        "groups": dict(report.groups),
        "formula": report.formula.symbols,
        "formula_numbers": report.formula.numbers,
        "letters": dict(report.formula.letters),
        "weights": [],
        "notes": list(model.notes),
    }


def _weights(model: Model) -> Iterator[dict[str, Any]]:
    made: dict[tuple[str, int], dict[str, Any]] = {}
    for leaf in model.weights:
        if (same := made.get(key := (leaf.pattern, id(leaf.weight)))) is None:
            same = made[key] = weight_json(model, leaf)
        at = leaf.indices
        yield (
            {**same, "path": fill_pattern(leaf.pattern, at), "names": {k: x and fill_pattern(x, at) for k, x in same["names"].items()}}
            if at
            else same
        )


def weight_json(model: Model, leaf: Leaf) -> dict[str, Any]:
    """One weight, with its pattern for a path."""
    weight = leaf.weight
    schemes = {name: model.family.schemes.get(name) for name in ("hf", "meta", "gguf")}
    return {
        "path": leaf.pattern,
        "shape": list(map(int, weight.shape)),
        "dims": [x.symbol for x in weight.shape],
        "parameters": leaf.parameters,
        "role": weight.role,
        "group": leaf.group,
        "tied": weight.tied or None,
        "names": {name: _name(scheme, leaf.pattern) for name, scheme in schemes.items()},
    }


def _name(scheme: Scheme | None, pattern: str) -> str | None:
    try:
        return scheme.stored(pattern) if scheme else None
    except Unnamed:
        return None


def names_json(model: Model, scheme: str) -> dict[str, Any]:
    """What `llamath names --scheme … --json` prints: the tensors as a checkpoint on disk has them."""
    listable(model)
    return {
        "scheme": scheme,
        "tensors": [{"name": x.name, "shape": list(map(int, x.shape))} for x in model.scheme(scheme).tensors(model.tree)],
    }
