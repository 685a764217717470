"""Shards in `explain`: what one rank of a tensor-parallel run, or one stage of a pipeline, holds."""

from __future__ import annotations

from collections.abc import Iterator

from ..parallel_layout import Layout, layout_problems, pipeline_stages, weight_shards
from .explain_base import Base
from .hypotheses import Space, Way
from .moves import Move

RANKS_OF_RUNS = {1: 1.5, 2: 1.0, 4: 1.0, 8: 1.0, 16: 2.0}
"""Sizes of tensor-parallel runs (1: a pipeline), with the bits that each costs."""


def shards(space: Space, number: int) -> Iterator[Way]:
    """What one rank of a parallel run holds, of those that could come near the number."""
    base = space.base
    for tp, bits in RANKS_OF_RUNS.items():
        for pp in (1,) if tp > 1 else (2, 4, 8):
            layout = Layout(tp=tp, pp=pp)
            if 3 + bits > space.bits or not _possible(base, number, layout) or layout_problems(base.tree, layout):
                continue
            for stage in pipeline_stages(base.tree, layout):
                if pp == 1 or stage.index in (0, 1, pp - 1):
                    size = sum(x.elements for x in weight_shards(base.tree, stage, layout))
                    move = Move("shard", _rank(tp, pp, stage.index), size - base.total, _cut(tp, pp, stage.layers), 3 + bits + (pp > 1))
                    yield Way(base, space.plain, moves=(move,), bits=move.bits, value=size)


def _possible(base: Base, number: int, layout: Layout) -> bool:
    """Whether a rank, or a stage with what may stand before or after it, could weigh that much."""
    if layout.pp == 1:
        return base.total <= layout.tp * number * 1.01 and layout.tp * number <= base.total * 1.2
    layers, largest = sum(x.size * x.times for x in base.kinds), max(x.size for x in base.kinds)
    beside = (0, *(base.vocabulary * base.outside[x] for x in ("embed_row", "head_row")))
    return any(abs(number - layers // layout.pp - x) <= 2 * largest for x in beside)


def _rank(tp: int, pp: int, stage: int) -> str:
    return f"one of {tp} tensor-parallel ranks" if pp == 1 else f"stage {stage + 1} of a pipeline of {pp}"


def _cut(tp: int, pp: int, layers: int) -> str:
    return f"matrices / {tp}, norms whole" if pp == 1 else f"{layers} layers and what stands beside them"
