"""The steps of a pass as a table, and their shapes and weights as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...core.expr import Expr
from ...model import FamilyModel
from ...render.tables import Column, Table
from .steps import Step, WeightUse
from .walkthrough import Walkthrough, WalkthroughStage

_COLUMNS = (
    Column("stage"),
    Column("times", "count"),
    Column("step"),
    Column("shape"),
    Column("weights"),
    Column("parameters", "count"),
    Column("FLOPs", "count"),
    Column("operation"),
)


def step_table(walk: Walkthrough, layer: int | None = None) -> Table:
    """Return the steps of a pass, with the parameters and FLOPs of one layer; with `layer`, of
    the layers only this one.
    """
    return Table(columns=_COLUMNS, rows=tuple(_rows(walk, layer)))


def shown_stages(walk: Walkthrough, layer: int | None) -> Iterator[WalkthroughStage]:
    """Yield the stages; with `layer`, of the layers only this one."""
    return (x for x in walk.stages if x.name != "layers" or layer in (None, x.layer))


def _rows(walk: Walkthrough, layer: int | None) -> Iterator[tuple[Any, ...]]:
    for x in shown_stages(walk, layer):
        name = f"{x.name} {x.layer}" if x.name.endswith("layers") else x.name
        for step in x.steps:
            yield (
                *(name, x.times, step.name, format_shape(step), format_weights(step.weights)),
                *(step.parameters if step.weights else None, int(step.flops), step.description),
            )


def format_shape(x: Step) -> str:
    """`[B, T, H, h] = [1, 7, 32, 128]`."""
    letters, numbers = ", ".join(d.symbol for d in x.shape), ", ".join(map(str, x.shape))
    return f"[{letters}] = [{numbers}]"


def format_weights(trace: Sequence[WeightUse]) -> str:
    """Return the weights of a step by their shapes: `[H·h, d], b`."""
    parts: list[str] = []
    for x in trace:
        letters = ", ".join(d.symbol for d in x.weight.shape)
        many = f"{Expr.const(x.copies).symbol} × " if int(x.copies) > 1 else ""
        parts.append("b" if x.weight.role == "bias" and parts else f"{many}[{letters}]")
    return ", ".join([*parts, *(["tied"] if any(x.weight.tied for x in trace) else [])]) or "none"


def list_letters(model: FamilyModel, walk: Walkthrough) -> list[str]:
    """Return the letters of a walkthrough with their names and values."""
    atoms: dict[str, int] = {}
    for stage in walk.stages:
        for x in stage.steps:
            for d in (*x.shape, *(d for y in x.weights for d in y.weight.shape)):
                atoms |= d.atoms
    keys = {"B": "sequences", "T": "tokens", "M": "keys in the cache", **model.key_by_symbol}
    return [f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in atoms.items()]
