"""`Layout`: how a model is laid out over GPUs, and what of its weights one GPU then holds.

Tensor parallelism cuts weights as their blocks declare (`Block.cuts`), expert parallelism distributes the stacks in
`Block.expert_parallel`, pipeline parallelism gives each stage a run of layers (or several, interleaved), and data and context parallelism
copy, unless ZeRO shards. Experts are cut over `etp` ranks, as all else is if it is not given, and their other copies are among the rest
of the ranks, as in Megatron (Narayanan et al. 2021, arXiv:2104.04473).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod
from typing import Literal, NamedTuple

from ..core.blocks import Decoder
from ..core.errors import LlamathError
from ..core.record_type import Record
from ..core.tree import Block, Folded, Stack, fold_field

Recompute = Literal["none", "selective", "full"]

MAX_STAGES = 1_000
"""So many runs of layers make a pipeline at the most."""
UNIT_NAMES = {
    "heads": "heads",
    "kv_heads": "key/value heads",
    "key_heads": "key heads of the delta rule",
    "value_heads": "value heads of the delta rule",
    "state_groups": "groups of Mamba's state",
}


class Layout(Record):
    """Ranks along each axis, and what is traded for memory."""

    tp: int = 1  # tensor
    pp: int = 1  # pipeline
    cp: int = 1  # context
    ep: int = 1  # expert, within data and context
    dp: int = 1  # data
    etp: int | None = None  # tensor parallelism inside an expert; None: as everywhere
    zero: int = 0  # what data parallelism shards: 1 optimizer states, 2 also gradients, 3 also weights (FSDP)
    sequence_parallel: bool = True  # with tensor parallelism, what lies between its regions is cut along the sequence
    interleave: int = 1  # runs of layers (virtual stages) in each stage
    microbatch: int = 1
    microbatches: int | None = None  # per step and pipeline; None: as many as there are stages
    recompute: Recompute = "none"
    flash: bool = True  # attention whose scores are never written

    @property
    def gpus(self) -> int:
        """How many there are."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def tp_and_pp(self) -> dict[str, int]:
        """The degrees that serving uses."""
        return {"tp": self.tp, "pp": self.pp}

    @property
    def expert_tp(self) -> int:
        """Over how many ranks one expert is cut."""
        return self.tp if self.etp is None else self.etp

    @property
    def replicas(self) -> int:
        """How many ranks hold the same dense weights, and share them under ZeRO."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """The same for experts."""
        return self.dp * self.cp * self.tp // (self.ep * self.expert_tp)

    @property
    def count(self) -> int:
        """Microbatches in a step."""
        return self.pp if self.microbatches is None else self.microbatches


class WeightShard(NamedTuple):
    """What one GPU has of a weight: its shape there, and how many of its copies."""

    pattern: str
    shape: tuple[int, ...]
    copies: int
    role: str
    group: str
    is_expert: bool  # of an expert
    full_shape: tuple[int, ...] = ()  # its shape before it is cut
    axis: int | None = None  # where it is cut
    buffer: bool = False  # stored, but not trained

    @property
    def elements(self) -> int:
        """All copies together."""
        return prod(self.shape) * self.copies


class PipelineStage(Record):
    """One stage of a pipeline: which layers it has, in one run or several, and what stands before or after them."""

    index: int
    runs: tuple[tuple[int, int], ...]
    first: bool
    last: bool

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return sum(b - a for a, b in self.runs)


def layout_problems(tree: Decoder, layout: Layout, context: int | None = None) -> list[str]:
    """Why a model cannot be laid out like this, as `TP 3: 52 heads`; empty where it can."""
    axes = ("tp", "pp", "cp", "ep", "etp", "dp", "interleave", "count")
    found = [f"{name.upper()} {n}: at least 1" for name in axes if (n := getattr(layout, name)) is not None and n < 1]
    if found:
        return found
    leaves = [x for name, _ in tree.children for x in fold_field(tree, name)]
    found = [x for leaf in leaves for x in _uncut(leaf, layout)]
    found += _ranks(leaves, layout) + _pipeline(tree, layout)
    if context is not None:
        if layout.cp > 1 and context % (2 * layout.cp):
            found.append(f"CP {layout.cp}: {context:,} tokens are not cut into {2 * layout.cp} equal parts")
        elif layout.tp > 1 and layout.sequence_parallel and context // layout.cp % layout.tp:
            found.append(f"TP {layout.tp}: {context // layout.cp:,} tokens of a sequence")
    return list(dict.fromkeys(found))


def check_layout(tree: Decoder, layout: Layout, context: int | None = None) -> None:
    """Refuse a layout that does not fit the model, naming each dimension."""
    if found := layout_problems(tree, layout, context):
        raise LlamathError("this layout does not divide the model: " + "; ".join(found))


def _uncut(x: Folded, layout: Layout) -> Iterator[str]:
    """Whether tensor parallelism can cut a leaf."""
    n, name = (layout.expert_tp, "expert TP") if x.num_experts and layout.etp is not None else (layout.tp, "TP")
    if x.split and not _fits(x.split.parts, n, x.split.on_indivisible):
        what = UNIT_NAMES.get(x.split.unit, f"of {x.split.unit}")
        yield f"{name} {n}: {x.split.parts:,} {what}"


def _fits(parts: int, n: int, otherwise: str) -> bool:
    return otherwise == "pad" or parts % n == 0 or (otherwise == "copy" and n % parts == 0)


def _ranks(leaves: list[Folded], layout: Layout) -> list[str]:
    """Whether experts can be dealt out."""
    experts = list(dict.fromkeys(x.num_experts for x in leaves if x.num_experts))
    if layout.ep == 1:
        return []
    if not experts:
        return [f"EP {layout.ep}: the model has no experts"]
    found = [f"EP {layout.ep}: {n:,} experts" for n in experts if n % layout.ep]
    ranks = layout.dp * layout.cp * layout.tp
    if ranks % (layout.ep * layout.expert_tp):
        found.append(f"EP {layout.ep}: not a divisor of the {ranks // layout.expert_tp} ranks of DP × CP × TP / expert TP")
    return found


def _pipeline(tree: Decoder, layout: Layout) -> list[str]:
    n, slots = int(tree.layers.n), layout.pp * layout.interleave
    if slots > MAX_STAGES:
        return [f"PP {layout.pp:,}: more than {MAX_STAGES:,} stages"]
    if layout.pp > 1 and n < slots - 2 * (layout.pp > 2):
        return [f"PP {layout.pp}" + (f" × {layout.interleave} interleaved" if layout.interleave > 1 else "") + f": {n:,} layers"]
    if layout.interleave > 1 and (layout.pp == 1 or layout.count % layout.pp):
        return [f"interleave {layout.interleave}: {layout.count} microbatches over PP {layout.pp}, which should be a divisor above 1"]
    return []


def pipeline_stages(tree: Decoder, layout: Layout) -> list[PipelineStage]:
    """The stages, layers as even as can be; what does not come out even goes to the middle, since first and last have more to hold."""
    slots = layout.pp * layout.interleave
    each, rest = divmod(int(tree.layers.n), slots)
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


def slice_layers(stack: Stack, first: int, last: int) -> list[tuple[Block, int]]:
    """The blocks from `first` up to `last`, each kind with how often it occurs."""
    found: dict[int, tuple[Block, int]] = {}
    start = 0
    for pattern, times in stack.runs:
        length, period = len(pattern) * int(times), len(pattern)
        low, high = max(first - start, 0), min(last - start, length)
        for i, block in enumerate(pattern) if low < high else ():
            n = -((i - high) // period) + ((i - low) // period)
            before = found[id(block)][1] if id(block) in found else 0
            found[id(block)] = (block, before + n)
        start += length
    return [(block, n) for block, n in found.values() if n]


def weight_shards(tree: Decoder, stage: PipelineStage, layout: Layout) -> list[WeightShard]:
    """What one GPU of a stage holds, before ZeRO shards it; a tied head on another stage than the embedding is a copy."""
    kinds = [pair for run in stage.runs for pair in slice_layers(tree.layers, *run)]
    part = tree.replace(layers=Stack(*(((block,), n) for block, n in kinds)))
    at = tree.fields.index("layers")
    made: list[WeightShard] = []
    for name, _ in part.children:
        place = tree.fields.index(name)
        if (place < at and not stage.first) or (place > at and not stage.last):
            continue
        made += [_piece(x, layout) for x in fold_field(part, name) if not x.weight.tied or not stage.first]
    return made


def _piece(x: Folded, layout: Layout) -> WeightShard:
    shape, n = list(map(int, x.weight.shape)), layout.expert_tp if x.num_experts else layout.tp
    if x.split:
        axis, parts = x.split.axis, x.split.parts
        shape[axis] = -(-shape[axis] // n) if x.split.on_indivisible == "pad" else shape[axis] // min(n, parts)
    copies = int(x.copies) // layout.ep if x.num_experts else int(x.copies)
    whole, cut = tuple(map(int, x.weight.shape)), x.split.axis if x.split else None
    return WeightShard(x.pattern, tuple(shape), copies, x.weight.role, x.group, bool(x.num_experts), whole, cut, x.weight.buffer)
