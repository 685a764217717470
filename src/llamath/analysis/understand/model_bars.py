"""A model as bars to scale: one for each part and each kind of layer, divided into components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.parameter_count import Section
from ...core.tree import TOWER_GROUPS, fold
from ...model import FamilyModel

COMPONENTS = {
    "embedding": "embed",
    "attention": "attn",
    "mixer": "attn",
    "mlp": "ffn",
    "other": "ffn",
    "": "ffn",
    "experts": "experts",
    "router": "router",
    "norm": "norm",
    "head": "head",
    **dict.fromkeys(TOWER_GROUPS, "vision"),
}
"""The group of a weight → the component whose color it has in all views."""
_AFTER_LAYERS = ("norm", "contract", "collapse", "head")
_MAX_ORDERED = 10_000
"""Of more layers, those of each kind stand together."""


class BarPart(NamedTuple):
    """A component of a bar."""

    component: str
    parameters: int
    active: int  # of them, those that one token uses


Bar = tuple[BarPart, ...]


class ModelBars(NamedTuple):
    """The bars of a model in the order in which tokens pass them."""

    before: tuple[Bar, ...]  # towers and embedding
    kinds: tuple[Bar, ...]  # of layers
    runs: tuple[tuple[int, int], ...]  # the layers: kind, number of consecutive ones
    after: tuple[Bar, ...]  # norm and head


def model_bars(model: FamilyModel) -> ModelBars:
    """Return the bars; what is excluded from the total has none."""
    layers = [x for x in model.count.sections if x.name == "layers"]
    used = used_copies(model)
    outside = {
        x.name: bar
        for x in model.count.sections
        if x.name not in ("layers", *model.tree.excluded) and (bar := _bar(x, used))
    }
    return ModelBars(
        before=tuple(bar for name, bar in outside.items() if name not in _AFTER_LAYERS),
        kinds=tuple(_bar(x, used) for x in layers),
        runs=_runs(layers),
        after=tuple(bar for name, bar in outside.items() if name in _AFTER_LAYERS),
    )


def used_copies(model: FamilyModel) -> Mapping[str, tuple[int, int]]:
    """Return the active and all copies of each weight that a token does not use whole, by its
    pattern in a layer.
    """
    return {
        x.pattern.removeprefix("layers.{l}."): (int(x.active), int(x.copies))
        for x in fold(model.tree)
        if int(x.active) != int(x.copies)
    }


def _runs(layers: list[Section]) -> tuple[tuple[int, int], ...]:
    if sum(int(x.times) for x in layers) > _MAX_ORDERED:
        return tuple((kind, int(x.times)) for kind, x in enumerate(layers))
    order: dict[int, int] = {}
    for kind, x in enumerate(layers):
        for first, last, step in x.indices:
            order |= dict.fromkeys(range(first, last + 1, step), kind)
    runs: list[tuple[int, int]] = []
    for _, kind in sorted(order.items()):
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    return tuple(runs)


def _bar(section: Section, used: Mapping[str, tuple[int, int]]) -> Bar:
    parts: dict[str, list[int]] = {}
    times = 1 if section.name == "layers" else int(section.times)
    for row in section.rows:
        component = COMPONENTS[row.group]
        n = row.parameters * times
        whole, active = parts.setdefault(component, [0, 0])
        some, copies = used.get(row.pattern, (1, 1))
        parts[component] = [whole + n, active + n * some // copies]
    return tuple(BarPart(x, n, active) for x, (n, active) in parts.items() if n)
