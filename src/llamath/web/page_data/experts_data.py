"""The mixture of experts: its layers and routing, and the experts and bytes that a decode step
reads at a batch size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from ...analysis.graph.operations.attention_operations import rope
from ...analysis.graph.operations.expert_operations import route, route_by_token
from ...analysis.graph.recorder import record
from ...analysis.size.memory.gpu_shards import BATCH, ShardedModel, WeightRead
from ...analysis.size.memory.inference_memory import MemoryCalculator
from ...core.blocks import MoE
from ...core.expr import Expr, Power, as_number, product, total
from ...core.latent_attention import LatentAttention
from ...core.parameter_count import layer_ranges
from ...core.tree import Block, Weight, fold, fold_blocks
from ...model import FamilyModel
from ...questions.layout import Layout
from ...utils.number_format import format_ranges
from .sizing.inference_data import variable

_HUNDREDTHS = 100
"""The expected number of distinct experts is given in hundredths."""
_EXTENSIONS, _FAMILIES = "llamath.core.extensions.", "llamath.families."
_CHOSEN = ("key_heads", "state_groups", "top_k")
"""What a GPU's part of a recurrent state is split by, and how many keys are chosen."""


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


def fixed_letters(model: FamilyModel) -> list[str]:
    """Return the letters that not all data follow: those of the experts and of the choice among
    them, from which shares are computed; of shared experts that are counted; of heads of which a
    share is rotated, or whose scores have a factor of their own; of latent vectors that are scaled;
    of the groups of a state; of a table of positions; and of blocks that few families have.
    """
    nodes = [x for _, x in record(model.tree).nodes()]
    blocks = list(fold_blocks(model.tree))
    moes = [x.block for x in blocks if isinstance(x.block, MoE)]
    transforms = (y for x in nodes if (y := x.attributes.get("transform")) is not None)
    numbers = [
        model.tree.context or 0,
        *(
            x.shape[-1]
            for x in nodes
            if x.op is rope and not Expr.const(x.attributes["rope"].dim).symbols
        ),
        *(y for x in moes for y in (x.experts.n, x.top_k)),
        *(x.scale.base for x in transforms if isinstance(x.scale, Power)),
        *(n for x in blocks for n in _ranks_with_factors(x.block)),
        *(n for x in blocks for n in _numbers_of_extension(x.block)),
        *(getattr(x.block, name) for x in blocks for name in _CHOSEN if hasattr(x.block, name)),
    ]
    if any(type(x.block).__module__.startswith(_EXTENSIONS) for x in blocks):
        return sorted({*model.count.formula.letters, *model.config.key_by_symbol})
    symbols = {y for x in numbers for y in Expr.const(x).symbols}
    return sorted(symbols.union(*map(_counts_of_shared, moes)))


def _numbers_of_extension(block: Block) -> Iterator[int]:
    """Yield the numbers of a block that few families have."""
    if type(block).__module__.startswith(_FAMILIES):
        for x in vars(block).values():
            yield from [x] if isinstance(x, Expr) else x.shape if isinstance(x, Weight) else ()


def _ranks_with_factors(block: Block) -> tuple[int, ...]:
    if not isinstance(block, LatentAttention) or block.q_factor == block.latent_factor == 1:
        return ()
    downs = (x for x in (block.q_down, block.kv_down) if x is not None)
    return tuple(n for x in downs for n in x.weight.shape)


def _counts_of_shared(moe: MoE) -> frozenset[str]:
    """Return the letters in the width of shared experts that are a number of them."""
    dimensions = _dimensions(moe.shared)
    products = (x.symbols for x in dimensions if len(x.symbols) > 1)
    others = (x.symbols for x in _dimensions(moe.experts[0]))
    return frozenset().union(*products).difference(*others)


def _dimensions(block: Block | None) -> list[Expr]:
    weights = [] if block is None else fold(block)
    return [Expr.const(n) for x in weights for n in x.weight.shape]


def _kind(moe: MoE) -> dict[str, Any]:
    """Return the sizes of one mixture."""
    n = as_number(moe.experts.n)
    active = n if moe.experts.active is None else as_number(moe.experts.active)
    missed, of = Fraction(n - active, n).as_integer_ratio()
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
        "distinct": WeightRead(_HUNDREDTHS * n, 1, 0, missed, of).of(BATCH).to_expression_json(),
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
