"""The activations that each pipeline stage holds: how many microbatches are in flight, and what
each GPU keeps of them.

1F1B (Narayanan et al. 2021, arXiv:2104.04473): stage i of p has p − i microbatches in flight;
interleaved with v chunks per stage, it has 2·(p − i − 1) + (v − 1)·p + 1 of them, each for one
chunk: 1 + (p − 1)/(p·v) times the layers of the model on the first stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import NamedTuple

from ....core.expr import Expr, ceil_div, maximum, minimum, product, total
from ....core.tree import Block
from ....questions.layout import Layout
from ...graph.operations.saved_tensors import SavedTensor
from ...storage.memory_line import MemoryLine
from ...storage.parallel_layout import PipelineStage, slice_layers
from .saved_activations import SavedActivations

_UNEVEN_UNDER_EP = ("experts", "inputs of experts", "outputs of experts")
"""Activations whose size depends on how many tokens are routed to the experts of a rank."""


class SavedCopies(NamedTuple):
    """A saved tensor and the number of copies that one GPU keeps."""

    saved: SavedTensor
    times: int


class StageActivations(NamedTuple):
    """The activations of a stage: kept for the backward pass, recomputed in one layer of each
    kind, and saved by the loss.
    """

    kept: tuple[SavedCopies, ...]
    recomputed: tuple[tuple[SavedCopies, ...], ...]
    loss: tuple[SavedCopies, ...]


def in_flight_microbatches(stage: PipelineStage, layout: Layout) -> list[int]:
    """Return the maximum number of in-flight microbatches of each chunk of a stage."""
    p, v, left = layout.pp, layout.interleave, layout.pp - stage.index - 1
    slots = (
        min(left + 1, layout.count) if v == 1 else min(2 * left + (v - 1) * p + 1, layout.count * v)
    )
    rounds, rest = divmod(slots, p)
    return [p * len(range(run, rounds, v)) + (rest if rounds % v == run else 0) for run in range(v)]


def stage_activations(
    saved: SavedActivations, stage: PipelineStage, layout: Layout
) -> StageActivations:
    """Return the activations of a stage at its peak, under the layout's recomputation policy."""
    flights = in_flight_microbatches(stage, layout)
    parts = [
        (block, n * flight)
        for run, flight in zip(stage.runs, flights, strict=True)
        for block, n in slice_layers(saved.tree.layers, *run)
    ]
    kept = [
        SavedCopies(x, n) for block, n in parts for x in _remaining(saved, block, layout.recompute)
    ]
    ends = (*(saved.embedding if stage.first else ()), *saved.shared_tables)
    kept += [SavedCopies(x, flights[0]) for x in ends]
    kept += [SavedCopies(x, 1) for x in saved.head if stage.last]
    works = {id(block): _recomputed(saved, block, layout.recompute) for block, _ in parts}
    return StageActivations(
        tuple(kept),
        tuple(works.values()),
        tuple(SavedCopies(x, 1) for x in saved.loss if stage.last),
    )


def _remaining(saved: SavedActivations, block: Block, recompute: str) -> tuple[SavedTensor, ...]:
    """Return what a layer keeps until the backward pass."""
    if recompute == "full":
        return (saved.input_of_layer,)
    if recompute == "op":
        return saved.kept_by_operation(block)
    return tuple(x for x in saved.layer(block) if not (x.is_score and recompute == "selective"))


def _recomputed(saved: SavedActivations, block: Block, recompute: str) -> tuple[SavedCopies, ...]:
    """Return what a layer saves again when it is recomputed."""
    if recompute == "op":
        return tuple(SavedCopies(x, 1) for x in saved.recomputed_by_operation(block))
    return tuple(
        SavedCopies(x, 1)
        for x in saved.layer(block)
        if recompute == "full" or (x.is_score and recompute == "selective")
    )


def saved_bytes(x: SavedTensor, layout: Layout, context: int) -> int:
    """Return the bytes of a saved tensor on one GPU, for one microbatch and one layer; an
    expression if the context is one.
    """
    elements = saved_elements(x, layout, context)
    return (
        product((elements, Expr.factor(x.bytes)))
        if isinstance(elements, Expr)
        else elements * x.bytes
    )


def saved_elements(x: SavedTensor, layout: Layout, context: int) -> int:
    """Return the elements of a saved tensor on one GPU; an expression if the context is one."""
    elements = x.elements.at(context=context) if isinstance(context, Expr) else int(x.elements)
    return ceil_div(_tokens(x, layout, context) * elements, _ranks(x, layout))


def _tokens(x: SavedTensor, layout: Layout, context: int) -> int:
    return ceil_div(context, layout.cp) * (1 if x.shared_by_batch else layout.microbatch)


def _ranks(x: SavedTensor, layout: Layout) -> int:
    """The number of tensor-parallel ranks that shard the tensor."""
    if x.sharding == "sequence":
        return layout.tp if layout.sequence_parallel else 1
    if x.sharding == "gathered":
        return layout.tp // layout.expert_tp
    return minimum(layout.tp, x.max_parts) if x.max_parts else layout.tp


def total_bytes(shares: Iterable[SavedCopies], layout: Layout, context: int) -> int:
    """Return the bytes of all copies; an expression if the context is one."""
    sizes = (x.times * saved_bytes(x.saved, layout, context) for x in shares)
    return total(sizes) if isinstance(context, Expr) else sum(sizes)


def recomputed_bytes(flow: StageActivations, layout: Layout, context: int) -> int:
    """Return the bytes of the recomputed layer that saves most."""
    return reduce(maximum, (total_bytes(x, layout, context) for x in flow.recomputed), 0)


def activation_lines(
    shares: Iterable[SavedCopies], layout: Layout, context: int
) -> Iterator[MemoryLine]:
    """Yield a memory line for each kind of tensor, with its formula."""
    groups: dict[str, list[SavedCopies]] = {}
    for x in shares:
        groups.setdefault(x.saved.what, []).append(x)
    for what, same in groups.items():
        if size := total_bytes(same, layout, context):
            uneven = layout.ep > 1 and what in _UNEVEN_UNDER_EP
            note = "with tokens spread evenly over experts" if uneven else ""
            yield MemoryLine(
                what=what,
                bytes=size,
                note=note,
                exact=not uneven and not any(x.saved.estimated for x in same),
            )
