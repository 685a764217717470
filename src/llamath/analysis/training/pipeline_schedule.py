"""What the stages of a pipeline keep of a forward pass: how many microbatches are on their way, and what of them each GPU holds.

1F1B (Narayanan et al. 2021, arXiv:2104.04473): stage i of p has p − i microbatches under way; interleaved, with v runs of layers each,
2·(p − i − 1) + (v − 1)·p + 1 of them, each through one run: 1 + (p − 1)/(p·v) times the layers of a model, on the first stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...core.blocks import Decoder, Layer
from ...core.expr import Dim
from ..memory_line import MemoryLine
from ..parallel_layout import Layout, PipelineStage, slice_layers
from .saved_activations import Kernels, Saved, adapters, after, before, layer, loss, rotary

UNEVEN = ("experts", "inputs of experts", "outputs of experts")
"""What depends on how many tokens go to the experts of a rank."""


class Share(NamedTuple):
    """Something kept, so many times over, by one GPU."""

    saved: Saved
    times: int


class Held(NamedTuple):
    """What a stage keeps, and what it works on beside that."""

    kept: tuple[Share, ...]
    working: tuple[Share, ...]  # of the layer that is computed again
    loss: tuple[Share, ...]


def under_way(stage: PipelineStage, layout: Layout) -> list[int]:
    """How many microbatches each run of a stage's layers has seen and not yet had back, when they are most."""
    p, v, left = layout.pp, layout.interleave, layout.pp - stage.index - 1
    slots = min(left + 1, layout.count) if v == 1 else min(2 * left + (v - 1) * p + 1, layout.count * v)
    rounds, rest = divmod(slots, p)
    return [p * len(range(run, rounds, v)) + (rest if rounds % v == run else 0) for run in range(v)]


def held(tree: Decoder, stage: PipelineStage, layout: Layout, k: Kernels) -> Held:
    """What a stage keeps at its fullest moment, under the layout's recomputation."""
    d, flights = Dim.const(tree.width), under_way(stage, layout)
    kept: list[Share] = []
    whole: dict[int, list[Saved]] = {}
    for run, flight in zip(stage.runs, flights, strict=True):
        for block, n in slice_layers(tree.layers, *run):
            assert isinstance(block, Layer)
            if id(block) not in whole:
                whole[id(block)] = _trained([*layer(block, d, k), *(adapters(block, k) if k.adapted else ())], k)
            kept += [Share(x, n * flight) for x in _remaining(whole[id(block)], d, k, layout.recompute)]
    ends = (before(tree, k) if stage.first else []) + rotary(tree, k)
    kept += [Share(x, flights[0]) for x in _trained(ends, k)]
    kept += [Share(x, 1) for x in _trained(after(tree, k), k) if stage.last]
    at_work = max((_again(x, layout.recompute) for x in whole.values()), key=lambda x: total(x, layout, k.context), default=[])
    return Held(tuple(kept), tuple(at_work), tuple(Share(x, 1) for x in loss(tree, k) if stage.last))


def _trained(found: list[Saved], k: Kernels) -> list[Saved]:
    """Without what only frozen weights would need."""
    return [x for x in found if not (x.weight and k.adapted)]


def _remaining(inner: list[Saved], d: Dim, k: Kernels, recompute: str) -> list[Saved]:
    """What of a layer stays until the backward pass."""
    if recompute == "full":
        return [Saved("inputs of layers", d, k.width, "sequence")]
    return [x for x in inner if not (x.core and recompute == "selective")]


def _again(inner: list[Saved], recompute: str) -> list[Share]:
    """What of a layer comes back when it is computed again."""
    return [Share(x, 1) for x in inner if recompute == "full" or (x.core and recompute == "selective")]


def bytes_of(x: Saved, layout: Layout, context: int) -> int:
    """What one GPU keeps of it, for one microbatch and one layer."""
    return -(-int(x.numbers) * x.bytes * _tokens(x, layout, context) // _ranks(x, layout))


def _tokens(x: Saved, layout: Layout, context: int) -> int:
    return -(-context // layout.cp) * (1 if x.once else layout.microbatch)


def _ranks(x: Saved, layout: Layout) -> int:
    """Over how many ranks tensor parallelism spreads it."""
    if x.cut == "sequence":
        return layout.tp if layout.sequence_parallel else 1
    if x.cut == "gathered":
        return layout.tp // layout.expert_tp
    return min(layout.tp, x.parts) if x.parts else layout.tp


def total(shares: Iterable[Share], layout: Layout, context: int) -> int:
    """All of them together."""
    return sum(x.times * bytes_of(x.saved, layout, context) for x in shares)


def lines(shares: Iterable[Share], layout: Layout, context: int) -> Iterator[MemoryLine]:
    """The same by what it is, each with its formula."""
    groups: dict[str, list[Share]] = {}
    for x in shares:
        groups.setdefault(x.saved.what, []).append(x)
    for what, same in groups.items():
        if size := total(same, layout, context):
            uneven = layout.ep > 1 and what in UNEVEN
            said = _formula(same, layout, context) + (", if each expert gets as many tokens" if uneven else "")
            yield MemoryLine(what=what, bytes=size, formula=said, exact=not uneven and not any(x.saved.rough for x in same))


def _formula(same: list[Share], layout: Layout, context: int) -> str:
    """Times · tokens · numbers · bytes, summed where they differ."""
    made: dict[str, int] = {}
    for x, times in same:
        symbol, ranks = x.numbers.symbol, _ranks(x, layout)
        one = f"{_tokens(x, layout, context):,}·{f'({symbol})' if ' ' in symbol else symbol}·{x.bytes}" + (f"/{ranks}" if ranks > 1 else "")
        made[one] = made.get(one, 0) + times
    return " + ".join(f"{times:,}·{one}" for one, times in made.items())
