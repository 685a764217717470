"""Hypotheses of shards: the parameters on one tensor-parallel rank or one pipeline stage."""

from __future__ import annotations

from collections.abc import Iterator

from ..parallel_layout import Layout, layout_problems, pipeline_stages, weight_shards
from .explain_base import BaseModel
from .hypotheses import Hypothesis, HypothesisSpace
from .moves import Move

_TP_BITS = {1: 1.5, 2: 1.0, 4: 1.0, 8: 1.0, 16: 2.0}
"""Tensor-parallel degrees (1: a pipeline) and the bits of each."""


def shards(space: HypothesisSpace, number: int) -> Iterator[Hypothesis]:
    """Yield the parameters of single ranks, for the layouts that could give the number."""
    base = space.base
    for tp, bits in _TP_BITS.items():
        for pp in (1,) if tp > 1 else (2, 4, 8):
            layout = Layout(tp=tp, pp=pp)
            if 3 + bits > space.bits or not _could_match(base, number, layout) or layout_problems(base.tree, layout):
                continue
            for stage in pipeline_stages(base.tree, layout):
                if pp == 1 or stage.index in (0, 1, pp - 1):
                    size = sum(x.elements for x in weight_shards(base.tree, stage, layout))
                    move = Move(
                        "shard",
                        _shard_name(tp, pp, stage.index),
                        size - base.total,
                        _shard_formula(tp, pp, stage.layers),
                        3 + bits + (pp > 1),
                    )
                    yield Hypothesis(base, space.base_shape, moves=(move,), bits=move.bits, value=size)


def _could_match(base: BaseModel, number: int, layout: Layout) -> bool:
    """Whether a rank, or a stage with the embedding or the head, could have that many parameters."""
    if layout.pp == 1:
        return base.total <= layout.tp * number * 1.01 and layout.tp * number <= base.total * 1.2
    layers, largest = sum(x.size * x.times for x in base.kinds), max(x.size for x in base.kinds)
    offsets = (0, *(base.vocabulary * base.outside_layers[x] for x in ("embed_row", "head_row")))
    return any(abs(number - layers // layout.pp - x) <= 2 * largest for x in offsets)


def _shard_name(tp: int, pp: int, stage: int) -> str:
    return f"one of {tp} tensor-parallel ranks" if pp == 1 else f"stage {stage + 1} of a pipeline of {pp}"


def _shard_formula(tp: int, pp: int, layers: int) -> str:
    return f"matrices / {tp}, norms whole" if pp == 1 else f"{layers} layers, with embedding or head where the stage has them"
