"""The data of the picture of the model: the parts outside the layers, the kinds of layers, and
which layer is of which kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...analysis.understand.fact_sheet import written_patterns
from ...analysis.understand.layer_pattern import describe_layer, ffn_pattern, mixer_pattern
from ...core.blocks import Decoder
from ...core.expr import as_number, product, total
from ...core.tree import Block, Folded, Stack, fold, fold_field, iter_stacks
from ...model import FamilyModel
from ...utils.number_marks import Arranged

_AFTER_LAYERS = ("norm", "head")
"""The groups of weights behind the layers; other parts are towers, or in front of the layers."""


def build_plate(model: FamilyModel, stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts and layers with their parameters; `stages` are those of the block diagram
    of the prefill.
    """
    tree = model.tree
    parts = {name: _part(tree, name) for name, child in tree.children if name != "layers"}
    names = [name for name, _ in tree.children]
    middle = names.index("layers")
    after = [name for name in names[middle:] if name in parts and _is_after_layers(parts[name])]
    return {
        "pattern": list(written_patterns(mixer_pattern(tree.layers), ffn_pattern(tree.layers))),
        "before": [parts[name] for name in names[:middle]],
        "after": [parts[name] for name in after],
        "towers": [parts[name] for name in names[middle:] if name in parts and name not in after],
        **_layers(tree, stages),
    }


def _is_after_layers(part: Mapping[str, Any]) -> bool:
    return all(x["group"] in _AFTER_LAYERS for x in part["groups"])


def _part(tree: Decoder, name: str) -> dict[str, Any]:
    """Return a part outside the layers; `layers` counts those of a tower."""
    child = tree.child(name)
    stacks = (
        [child]
        if isinstance(child, Stack)
        else list(iter_stacks(child))
        if isinstance(child, Block)
        else []
    )
    layers = max((x.n for x in stacks), default=0)
    return {
        "name": name,
        "layers": str(layers),
        "tied": _tied_to(fold_field(tree, name)),
    } | layer_sizes(fold_field(tree, name))


def _tied_to(leaves: Iterable[Folded]) -> str:
    return next((x.weight.tied for x in leaves if x.weight.tied), "")


def layer_sizes(leaves: Iterable[Folded]) -> dict[str, Any]:
    """Return parameters and active parameters by group, in the order of the tensors."""
    groups: dict[str, list[int]] = {}
    for x in leaves:
        size = groups.setdefault(x.group or "other", [0, 0])
        size[0] += product((x.weight.parameters, x.copies))
        size[1] += product((x.weight.active_parameters, x.active))
    rows = [
        {"group": name, "parameters": str(n), "active": str(active)}
        for name, (n, active) in groups.items()
    ]
    return {
        "groups": rows,
        "parameters": str(total(n for n, _ in groups.values())),
        "active": str(total(n for _, n in groups.values())),
    }


def _layers(tree: Decoder, stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the kinds of layers, and the layers in order as (kind, number of layers)."""
    kinds, index_of_block, first = list[dict[str, Any]](), dict[int, int](), 0
    order: list[list[int]] = []
    for block, n in _runs(tree.layers):
        if id(block) not in index_of_block:
            key = {
                "sizes": layer_sizes(fold(block, 1)),
                "label": describe_layer(block),
                "stage": _stage_of_layer(stages, first),
            }
            same = next((i for i, x in enumerate(kinds) if key.items() <= x.items()), len(kinds))
            if same == len(kinds):
                kinds.append(key | {"weights": list(layer_weights(block))})
            index_of_block[id(block)] = same
        order = _appended(order, index_of_block[id(block)], n)
        first += n
    if (arrangement := tree.layers.arrangement) is not None:
        parts = arrangement.map(lambda block: index_of_block[id(block)])
        own = [[kind, int(n)] for kind, n in order]
        order = Arranged(own, parts, as_number(tree.layers.n), in_runs=True)
    return {"kinds": kinds, "order": order}


def _stage_of_layer(stages: Sequence[Mapping[str, Any]], layer: int) -> int | None:
    """Return the index of the stage that shows a layer."""
    for i, stage in enumerate(stages):
        if any(
            first <= layer <= last and (layer - first) % step == 0
            for first, last, step in stage["ranges"]
        ):
            return i
    return None


def layer_weights(block: Block) -> Iterator[dict[str, Any]]:
    """Yield the weights of a layer, each with the axis, number and name of the parts that tensor
    parallelism never splits.
    """
    for x in fold(block, 1):
        split = None if x.split is None else [x.split.axis, x.split.parts, x.split.unit]
        yield {
            "path": x.pattern,
            "group": x.group or "other",
            "shape": [str(d) for d in x.weight.shape],
            "copies": str(x.copies),
            "split": split,
        }


def _runs(layers: Stack) -> Iterator[tuple[Block, int]]:
    """Yield blocks with their numbers of consecutive layers."""
    for unit, times in layers.runs:
        if len(unit) == 1:
            yield unit[0], times
        else:
            for _ in range(int(times)):
                yield from ((x, 1) for x in unit)


def _appended(order: list[list[int]], kind: int, n: int) -> list[list[int]]:
    if order and order[-1][0] == kind:
        order[-1][1] += n
    else:
        order.append([kind, n])
    return order
