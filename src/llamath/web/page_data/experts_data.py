"""The mixture of experts: its layers and routing, and the experts and bytes that a decode step
reads at a batch size.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ...analysis.graph.operations.expert_operations import route, route_by_token
from ...analysis.graph.recorder import record
from ...analysis.size.memory.gpu_shards import BATCH, ShardedModel, WeightRead
from ...analysis.size.memory.inference_memory import MemoryCalculator
from ...core.blocks import MoE
from ...core.expr import as_number, product, total
from ...core.parameter_count import layer_ranges
from ...core.tree import Block, fold
from ...model import FamilyModel
from ...questions.layout import Layout
from ...utils.number_format import format_ranges
from .sizing.inference_data import variable

_HUNDREDTHS = 100
"""The expected number of distinct experts is given in hundredths."""


def build_experts(
    model: FamilyModel, memory_by_dtype: Mapping[str, MemoryCalculator]
) -> dict[str, Any] | None:
    """Return the layers with experts; None for a dense model."""
    graph = record(model.tree)
    kinds: dict[tuple[str, ...], tuple[dict[str, Any], int, set[int]]] = {}
    for region in graph.layers:
        for node in (x for x in region.nodes if x.op in (route, route_by_token)):
            kind = _kind(node.attributes["moe"])
            first, layers, ids = kinds.get(key := tuple(map(str, kind.values())), (kind, 0, set()))
            kinds[key] = (first, layers + region.times, ids | {id(region.block)})
    if not kinds:
        return None
    reads = {name: _reads(x) for name, x in memory_by_dtype.items()}
    return {
        "kinds": [
            kind | {"layers": str(layers), "ranges": ranges, "where": format_ranges(ranges)}
            for kind, layers, ids in kinds.values()
            for ranges in [layer_ranges(model.tree.layers, ids)]
        ],
        "of": str(model.tree.layers.n),
        "read": {
            f"{missed}/{experts}": WeightRead(variable("X"), 1, 0, missed, experts)
            .of(BATCH)
            .to_expression_json()
            for missed, experts in dict.fromkeys(
                key for each in reads.values() for key in each if key[0]
            )
        },
        "bytes": {
            name: {f"{missed}/{experts}": str(n) for (missed, experts), n in each.items()}
            for name, each in reads.items()
        },
    }


def _kind(moe: MoE) -> dict[str, Any]:
    """Return the sizes of one mixture."""
    n = as_number(moe.experts.n)
    active = n if moe.experts.active is None else as_number(moe.experts.active)
    return {
        "experts": str(n),
        "chosen": str(active),
        "zero": str(moe.zero_experts),
        "shared": moe.shared is not None or getattr(moe, "num_shared", None) is not None,
        "sharedParameters": _parameters(moe.shared),
        "each": _parameters(moe.experts[0]),
        "groups": None
        if moe.expert_groups is None
        else [str(moe.expert_groups.groups), str(moe.expert_groups.kept)],
        "scoring": moe.scoring,
        "distinct": WeightRead(_HUNDREDTHS * n, 1, 0, n - active, n).of(BATCH).to_expression_json(),
    }


def _parameters(block: Block | None) -> str:
    return (
        "0"
        if block is None
        else str(total(product((x.weight.parameters, x.copies)) for x in fold(block)))
    )


def _reads(found: MemoryCalculator) -> dict[tuple[int, int], int]:
    """Return the bytes of experts by (experts that a token does not use, experts), and under (0,
    1) those of all other matrices.
    """
    sizes: dict[tuple[int, int], Fraction] = {}
    for x in ShardedModel(found, Layout()).reads[0]:
        if not x.rows:
            key = (x.missed, x.experts) if x.missed else (0, 1)
            sizes[key] = sizes.get(key, Fraction(0)) + Fraction(x.size, x.unit)
    return {key: round(n) for key, n in sizes.items()}
