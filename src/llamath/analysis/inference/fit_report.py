"""`fit`: whether a model that serves fits so many GPUs, how it is split over them, what is left, and what would fit instead."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TYPE_CHECKING

from ...core.blocks import Decoder
from ...core.errors import LlamathError
from ...core.record_type import Record
from ...core.tree import fold
from ...hardware import Device, devices
from ..parallel_layout import UNIT_NAMES, Layout, layout_problems, pipeline_stages
from .cache_bytes import kv_cache_size
from .gpu_shards import ShardedModel, StageMemory
from .inference_memory import MemoryCalculator, largest_fitting
from .speed_limits import SpeedLimits, speed_limits

if TYPE_CHECKING:
    from ...model import Model

SMALLER_DTYPES = ("fp8", "mxfp4", "awq", "q4_k_m", "q2_k")
"""What weights could be kept in instead, about from the largest to the smallest; MXFP4 packs the experts of mixtures."""
GPU_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
"""How many GPUs are tried where fewer do not do."""
MAX_TP, MAX_PP = 256, 1024
"""No tensor parallelism and no pipeline is tried beyond these."""


class FitAlternative(Record):
    """A change with which it would fit, and what the fullest GPU then holds."""

    change: str  # as options say it
    what: str
    total: int


class FitReport(Record):
    """The answer."""

    gpu: Device
    count: int
    layout: Layout
    dtype: str
    kv_dtype: str
    context: int
    batch: int
    stages: tuple[StageMemory, ...]
    max_context: int | None  # None: any
    max_batch: int | None
    ceilings: SpeedLimits
    instead: tuple[FitAlternative, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """What the fullest GPU holds."""
        return max(x.total for x in self.stages)

    @property
    def fits(self) -> bool:
        """Whether that is no more than it has."""
        return self.total <= self.gpu.memory


def gpus_option(count: int, device: Device) -> str:
    """So many of a device, as `--on` says it."""
    return device.name if count == 1 else f"{count}x{device.name}"


def fit(model: Model, sizes: MemoryCalculator, on: tuple[int, Device], tp: int | None = None, pp: int | None = None) -> FitReport:
    """Whether a model fits; `tp` and `pp` say how it is split, else the widest tensor parallelism inside a node is taken."""
    count, device = on
    layout = choose_layout(sizes.tree, count, device.node, tp, pp)
    shards, context, batch = ShardedModel(sizes, layout), sizes.context, sizes.request.batch
    shares = tuple(shards.stage_memory(context, batch))
    whole = max(x.total for x in shares) <= device.memory
    longest = largest_fitting(lambda n: shards.max_memory(n, batch) <= device.memory)
    return FitReport(
        gpu=device,
        count=count,
        layout=layout,
        dtype="as stored" if sizes.storage is None else sizes.packer.name,
        kv_dtype=sizes.kv_dtype,
        context=context,
        batch=batch,
        stages=shares,
        max_context=longest,
        max_batch=largest_fitting(lambda n: shards.max_memory(context, n) <= device.memory),
        ceilings=speed_limits(shards, device, context, batch),
        instead=() if whole else tuple(_instead(model, sizes, on, longest)),
        notes=tuple(_notes(shards, context)),
    )


def choose_layout(tree: Decoder, count: int, node: int, tp: int | None = None, pp: int | None = None) -> Layout:
    """The layout for so many GPUs: as asked, or the widest tensor parallelism in a node that divides the model, then a pipeline."""
    if tp is not None or pp is not None:
        return _asked(tree, count, tp, pp)
    for ranks in reversed(tp_degrees(tree)):
        layout = Layout(tp=ranks, pp=count // ranks)
        if ranks <= node and count % ranks == 0 and layout.pp <= _deepest(tree) and not layout_problems(tree, layout):
            return layout
    raise LlamathError(
        f"one copy of the model cannot be spread over {count:,} GPUs: {_allowed(tree)}; a pipeline has at most {_deepest(tree):,} stages",
        hint="more GPUs than that serve further copies: ask about one",
    )


def _asked(tree: Decoder, count: int, tp: int | None, pp: int | None) -> Layout:
    ranks = tp if tp is not None else max(count // (pp or 1), 1)
    depth = pp if pp is not None else max(count // ranks, 1) if ranks > 0 else 1
    if ranks < 1 or depth < 1 or ranks * depth != count:
        raise LlamathError(f"TP {ranks} × PP {depth} is {ranks * depth:,} GPUs, not {count:,}", hint="their product is the number of GPUs")
    layout = Layout(tp=ranks, pp=depth)
    if depth > _deepest(tree):
        raise LlamathError(f"PP {depth:,}: the model has {int(tree.layers.n):,} layers", hint=f"{_deepest(tree):,} stages at the most")
    if found := layout_problems(tree, layout):
        alone = Layout(pp=count)
        even = "" if layout_problems(tree, alone) else f"; --pp {count} is a pipeline of {_sizes(tree, alone)} layers"
        raise LlamathError(f"this model cannot be cut like this: {'; '.join(found)}", hint=f"{_allowed(tree)}{even}")
    return layout


def tp_degrees(tree: Decoder) -> list[int]:
    """Every tensor parallelism that divides the model, up to what anybody tries."""
    common = gcd(*(x.split.parts for x in fold(tree) if x.split and not x.split.on_indivisible))
    return [n for n in range(1, MAX_TP + 1) if common % n == 0 and not layout_problems(tree, Layout(tp=n))]


def _deepest(tree: Decoder) -> int:
    """How many stages a pipeline has at the most: one for each layer."""
    return min(int(tree.layers.n), MAX_PP)


def _allowed(tree: Decoder) -> str:
    """Which tensor parallelism divides the model: by its heads, and by everything."""
    every = tp_degrees(tree)
    heads = {x.split.parts for x in fold(tree) if x.split and x.split.unit == "heads"}
    text = f"TP can be {_listed(every)}"
    if len(heads) == 1:
        (n,) = heads
        divisors = [i for i in range(1, min(n, MAX_TP) + 1) if n % i == 0]
        others = [x.split for x in fold(tree) if x.split and x.split.parts != n and not x.split.on_indivisible]
        rest = sorted({f"{x.parts:,} {UNIT_NAMES.get(x.unit, f'of {x.unit}')}" for x in others if any(x.parts % i for i in divisors)})
        if set(divisors) - set(every):
            text += f" ({n} heads alone: {_listed(divisors)}; but {', '.join(rest)})"
    return text


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _sizes(tree: Decoder, layout: Layout) -> str:
    return " + ".join(str(x.layers) for x in pipeline_stages(tree, layout))


def _notes(shards: ShardedModel, context: int) -> Iterator[str]:
    tree, layout = shards.tree, shards.layout
    if layout.pp > 1:
        asked = Layout(tp=layout.tp * layout.pp)
        refused = [x for x in layout_problems(tree, asked) if "heads" in x] or layout_problems(tree, asked)
        why = f"TP {asked.tp} does not divide the model ({refused[0].partition(': ')[2]}): " if refused else ""
        yield f"{why}a pipeline of {_sizes(tree, layout)} layers" + (f"; {_allowed(tree)}" if refused else "")
    kept = kv_cache_size(tree, context, 1, shards.calculator.kv_dtype).bytes
    held = layout.tp * sum(shards.kv_cache(i, context, 1) for i in range(len(shards.stages)))
    if kept and held > 1.01 * kept:
        yield f"TP {layout.tp} keeps {held / kept:.3g} copies of the cache: what it is made of has fewer parts than there are ranks"


def _instead(model: Model, sizes: MemoryCalculator, on: tuple[int, Device], longest: int | None) -> Iterator[FitAlternative]:
    yield from _smaller(model, sizes, on)
    if longest and (most := _most(sizes, on, longest)):
        yield FitAlternative(change=f"--context {longest}", what=f"{longest:,} tokens in place of {sizes.context:,}", total=most)
    if sizes.kv_dtype not in ("fp8", "int8"):
        other = MemoryCalculator(model, sizes.request.replace(kv_dtype="fp8"), sizes.weights if sizes.storage is None else None)
        if (most := _most(other, on)) and most <= on[1].memory:
            yield FitAlternative(change="--kv-dtype fp8", what="the cache in 8 bits", total=most)
    yield from _larger(sizes, on)


def _smaller(model: Model, sizes: MemoryCalculator, on: tuple[int, Device]) -> Iterator[FitAlternative]:
    """The two largest of the smaller schemes that fit."""
    found, before = 0, sum(x.bytes for x in sizes.weights)
    mixed = any(x.num_experts for x in fold(sizes.tree))
    for name in SMALLER_DTYPES if mixed else [x for x in SMALLER_DTYPES if x != "mxfp4"]:
        other = MemoryCalculator(model, sizes.request.replace(dtype=name))
        try:
            weights, most = sum(x.bytes for x in other.weights), _most(other, on)
        except LlamathError:
            continue
        if weights < before and most and most <= on[1].memory and found < 2:
            found += 1
            yield FitAlternative(change=f"--dtype {name}", what=f"weights of {weights / 1e9:,.1f} GB in all", total=most)


def _larger(sizes: MemoryCalculator, on: tuple[int, Device]) -> Iterator[FitAlternative]:
    """The fewest of the same GPU, and the smallest other GPU in the same number."""
    count, device = on
    for n in GPU_COUNTS:
        whole = n <= device.node or n % device.node == 0
        if n > count and whole and (most := _most(sizes, (n, device))) and most <= device.memory:
            yield FitAlternative(change=f"--on {gpus_option(n, device)}", what="more of them", total=most)
            break
    for other in sorted(devices(), key=lambda x: x.memory):
        if other.memory > device.memory and (most := _most(sizes, (count, other))) and most <= other.memory:
            yield FitAlternative(
                change=f"--on {gpus_option(count, other)}", what=f"the smallest with room, {other.memory / 2**30:.1f} GiB each", total=most
            )
            break


def _most(sizes: MemoryCalculator, on: tuple[int, Device], context: int | None = None) -> int | None:
    """What the fullest GPU would hold; None where so many cannot share the model."""
    try:
        layout = choose_layout(sizes.tree, on[0], on[1].node)
    except LlamathError:
        return None
    return ShardedModel(sizes, layout).max_memory(context or sizes.context, sizes.request.batch)
