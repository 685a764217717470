"""The parallel layout of a model over GPUs: its shards of weights and its stages.

Tensor parallelism splits weights as their blocks declare (`Block.cuts`), expert parallelism
distributes the stacks of `Block.expert_parallel`, pipeline parallelism gives each stage one run of
layers (or several, interleaved), and data and context parallelism copy the weights unless ZeRO
shards them. Experts are split over `etp` ranks (by default over `tp`), and their copies are among
the other ranks, as in Megatron (Narayanan et al. 2021, arXiv:2104.04473).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

from ...core.blocks import TOWER_FIELDS, Decoder
from ...core.expr import as_number
from ...core.tree import LOOPED, Block, Folded, Stack, fold, fold_field
from ...questions.layout import Layout
from ...utils.errors import LlamathError
from ...utils.record_type import Record

_MAX_STAGES = 1_000
"""The most runs of layers in a pipeline."""
UNIT_NAMES = {
    "heads": "heads",
    "kv_heads": "key/value heads",
    "key_heads": "key heads of the delta rule",
    "value_heads": "value heads of the delta rule",
    "state_groups": "groups of Mamba's state",
}


class WeightShard(NamedTuple):
    """The part of a weight on one GPU: its shape there, and the number of copies."""

    pattern: str
    shape: tuple[int, ...]
    copies: int
    role: str
    group: str
    is_expert: bool  # part of an expert
    full_shape: tuple[int, ...] = ()  # the shape before the split
    axis: int | None = None  # of the split
    buffer: bool = False  # stored but not trained

    @property
    def elements(self) -> int:
        """The elements of all copies."""
        return prod(self.shape) * self.copies


class PipelineStage(Record):
    """One stage of a pipeline: its runs of layers, and whether it has the embedding or the head."""

    index: int
    runs: tuple[tuple[int, int], ...]
    first: bool
    last: bool

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return sum(b - a for a, b in self.runs)


def layout_problems(tree: Decoder, layout: Layout, context: int | None = None) -> list[str]:
    """Return the reasons why a model cannot be split by a layout, such as `TP 3: 52 heads`;
    empty if it can.
    """
    axes = ("tp", "pp", "cp", "ep", "etp", "dp", "interleave", "count")
    problems = [
        f"{name.upper()} {n}: at least 1"
        for name in axes
        if (n := getattr(layout, name)) is not None and n < 1
    ]
    if problems:
        return problems
    leaves = [
        x for name, _ in tree.children if name not in TOWER_FIELDS for x in fold_field(tree, name)
    ]
    problems = [x for leaf in leaves for x in _tp_problems(leaf, layout)]
    problems += _ep_problems(leaves, layout) + _pp_problems(tree, layout)
    if context is not None:
        if layout.cp > 1 and context % (2 * layout.cp):
            problems.append(
                f"CP {layout.cp}: {context:,} tokens do not divide into {2 * layout.cp} equal parts"
            )
        elif layout.tp > 1 and layout.sequence_parallel and context // layout.cp % layout.tp:
            problems.append(f"TP {layout.tp}: {context // layout.cp:,} tokens of a sequence")
    return list(dict.fromkeys(problems))


def check_layout(tree: Decoder, layout: Layout, context: int | None = None) -> None:
    """Reject a layout that does not divide the model, naming each dimension."""
    if problems := layout_problems(tree, layout, context):
        raise LlamathError("this layout does not divide the model: " + "; ".join(problems))


def _tp_problems(x: Folded, layout: Layout) -> Iterator[str]:
    """Yield the reason why tensor parallelism cannot split a weight."""
    n, name = (
        (layout.expert_tp, "expert TP")
        if x.num_experts and layout.etp is not None
        else (layout.tp, "TP")
    )
    if x.split and not _divides(x.split.parts, n, x.split.on_indivisible):
        what = UNIT_NAMES.get(x.split.unit, f"of {x.split.unit}")
        yield f"{name} {n}: {x.split.parts:,} {what}"


def _divides(parts: int, n: int, on_indivisible: str) -> bool:
    return (
        on_indivisible == "pad" or parts % n == 0 or (on_indivisible == "copy" and n % parts == 0)
    )


def _ep_problems(leaves: list[Folded], layout: Layout) -> list[str]:
    """Return the reasons why the experts cannot be distributed."""
    experts = list(dict.fromkeys(x.num_experts for x in leaves if x.num_experts))
    if layout.ep == 1:
        return []
    if not experts:
        return [f"EP {layout.ep}: the model has no experts"]
    problems = [f"EP {layout.ep}: {n:,} experts" for n in experts if n % layout.ep]
    ranks = layout.dp * layout.cp * layout.tp
    if ranks % (layout.ep * layout.expert_tp):
        problems.append(
            f"EP {layout.ep}: not a divisor of the {ranks // layout.expert_tp} ranks "
            "of DP × CP × TP / expert TP"
        )
    return problems


def _pp_problems(tree: Decoder, layout: Layout) -> list[str]:
    n, slots = int(tree.layers.n), layout.pp * layout.interleave
    if slots > _MAX_STAGES:
        return [f"PP {layout.pp:,}: more than {_MAX_STAGES:,} stages"]
    if layout.pp > 1 and n < slots - 2 * (layout.pp > 2):
        return [
            f"PP {layout.pp}"
            + (f" × {layout.interleave} interleaved" if layout.interleave > 1 else "")
            + f": {n:,} layers"
        ]
    if layout.interleave > 1 and (layout.pp == 1 or layout.count % layout.pp):
        return [
            f"interleave {layout.interleave}: {layout.count} microbatches over PP "
            f"{layout.pp}, which should be a divisor above 1"
        ]
    return []


def pipeline_stages(tree: Decoder, layout: Layout) -> list[PipelineStage]:
    """Return the stages with layers as even as possible; the middle gets the remainder, as first
    and last stage hold more.
    """
    slots = layout.pp * layout.interleave
    layers = as_number(tree.layers.n)
    each, rest = layers // slots, layers % slots
    skip = (slots - rest) // 2
    sizes = [each + (skip <= i < skip + rest) for i in range(slots)]
    starts = list(accumulate(sizes, initial=0))
    return [
        PipelineStage(
            index=i,
            runs=tuple((starts[j], starts[j] + sizes[j]) for j in range(i, slots, layout.pp)),
            first=i == 0,
            last=i == layout.pp - 1,
        )
        for i in range(layout.pp)
    ]


def stage_layers(stack: Stack, stage: PipelineStage) -> list[tuple[Block, int]]:
    """Return the distinct blocks of each run of a stage, with their numbers."""
    return [pair for run in stage.runs for pair in slice_layers(stack, *run)]


def slice_layers(stack: Stack, first: int, last: int) -> list[tuple[Block, int]]:
    """Return the distinct blocks from layer `first` up to `last`, with their numbers."""
    if stack.arrangement is not None and (first, last) == (0, len(stack)):
        return [(block, as_number(n)) for block, n in stack.distinct()]
    counts: dict[int, tuple[Block, int]] = {}
    start = 0
    for pattern, times in stack.runs:
        length, period = len(pattern) * as_number(times), len(pattern)
        low, high = max(first - start, 0), min(last - start, length)
        for i, block in enumerate(pattern) if low < high else ():
            n = -((i - high) // period) + ((i - low) // period)
            previous = counts[id(block)][1] if id(block) in counts else 0
            counts[id(block)] = (block, previous + n)
        start += length
    return [(block, n) for block, n in counts.values() if n]


def weight_shards(tree: Decoder, stage: PipelineStage, layout: Layout) -> list[WeightShard]:
    """Return the shards on one GPU of a stage, before ZeRO; a tied head on another stage than the
    embedding is a copy.

    So are the weights of a block that layers of several stages share.
    """
    kinds = stage_layers(tree.layers, stage)
    part = tree.replace(layers=Stack(*(((block,), n) for block, n in kinds)))
    layers_position = tree.fields.index("layers")
    shards: list[WeightShard] = []
    for name, _ in tree.children:
        position = tree.fields.index(name)
        in_first = position < layers_position or name in TOWER_FIELDS
        if (in_first and not stage.first) or (
            position > layers_position and not in_first and not stage.last
        ):
            continue
        in_layers = name == "layers"
        leaves = (
            _tower_leaves(tree, name, layout)
            if name in TOWER_FIELDS
            else fold_field(part if in_layers else tree, name)
        )
        shards += [
            _shard(x, layout) for x in leaves if not x.weight.tied or not (in_layers or stage.first)
        ]
    return shards + [_shard(x, layout) for x in _shared_copies(kinds, stage)]


def _shared_copies(kinds: Iterable[tuple[Block, int]], stage: PipelineStage) -> Iterator[Folded]:
    """Yield the weights that the layers of a stage share with a layer of another stage, once
    each.
    """
    found: set[str] = set()
    for block, _ in kinds:
        for x in fold(block):
            path = x.weight.tied
            if path.startswith("layers.") and path not in found:
                found.add(path)
                if n := _owners_elsewhere(path.split(".")[1], stage):
                    pattern = f"layers.{{l}}.{x.pattern.replace('{l}', '{e}')}"
                    yield x._replace(pattern=pattern, copies=n * x.copies, active=n * x.active)


def _owners_elsewhere(owner: str, stage: PipelineStage) -> int:
    """Return how many layers of other stages have the weights that layers of a stage share: one
    layer, or with several passes those of the first pass.
    """
    if not owner.startswith(LOOPED):
        return int(not any(first <= int(owner) < last for first, last in stage.runs))
    period = int(owner[len(LOOPED) : -1])
    own = sum(max(0, min(last, period) - first) for first, last in stage.runs)
    return _places(stage.runs, period) - own


def _places(runs: Iterable[tuple[int, int]], period: int) -> int:
    """Return how many places in a pass of `period` layers these layers of any pass have."""
    spans = []
    for first, last in runs:
        start, length = first % period, min(last - first, period)
        spans += [(start, min(start + length, period)), (0, start + length - period)]
    places = end = 0
    for first, last in sorted(spans):
        places += max(0, last - max(first, end))
        end = max(end, last)
    return places


def _tower_leaves(tree: Decoder, name: str, layout: Layout) -> Sequence[Folded]:
    """Return the leaves of a tower, which every rank holds whole if tensor parallelism cannot
    split it.
    """
    leaves = fold_field(tree, name)
    indivisible = any(True for x in leaves for _ in _tp_problems(x, layout))
    return [x._replace(split=None) for x in leaves] if indivisible else leaves


def _shard(x: Folded, layout: Layout) -> WeightShard:
    full_shape = tuple(map(as_number, x.weight.shape))
    shape, n = [*full_shape], layout.expert_tp if x.num_experts else layout.tp
    if x.split:
        axis, parts = x.split.axis, as_number(x.split.parts)
        shape[axis] = (
            -(-shape[axis] // n)
            if x.split.on_indivisible == "pad"
            else shape[axis] // min(n, parts)
        )
    copies = as_number(x.copies) // layout.ep if x.num_experts else as_number(x.copies)
    return WeightShard(
        x.pattern,
        tuple(shape),
        copies,
        x.weight.role,
        x.group,
        bool(x.num_experts),
        full_shape,
        x.split.axis if x.split else None,
        x.weight.buffer,
    )
