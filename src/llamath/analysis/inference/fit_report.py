"""`fit`: check whether a model fits the memory of GPUs for inference, choose the split, and suggest changes that fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd
from typing import TYPE_CHECKING, ClassVar

from ...core.blocks import Decoder
from ...core.tree import fold
from ...hardware import Device, devices
from ...utils.errors import LlamathError
from ...utils.number_format import format_count, format_giga, format_list
from ...utils.record_type import Record
from ...utils.report import Report, html_table
from ..parallel_layout import UNIT_NAMES, Layout, layout_problems, pipeline_stages
from .cache_bytes import sum_cache_specs
from .gpu_shards import ShardedModel, StageMemory
from .inference_memory import AS_STORED, MemoryCalculator, largest_fitting
from .speed_limits import SpeedLimits, speed_limits

if TYPE_CHECKING:
    from ...model import Model

_SMALLER_DTYPES = ("fp8", "mxfp4", "awq", "q4_k_m", "q2_k")
"""Smaller dtypes that are tried, from large to small; MXFP4 packs only the experts of a mixture."""
_GPU_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
"""Larger numbers of GPUs that are tried if the model does not fit."""
MAX_TP, MAX_PP = 256, 1024
"""The largest tensor and pipeline parallelism that is tried."""


class _FitAlternative(Record):
    """One change with which the model would fit, and the memory of the most loaded GPU with it."""

    change: str  # as an option of the command line
    what: str
    total: int


class _GPUMemory(Record):
    """The memory of one GPU, in bytes."""

    gpu: int
    stage: int
    rank: int
    layers: tuple[tuple[int, int], ...]  # (first, last) of each run
    weights: int
    kv_cache: int
    activations: int
    logits: int
    overhead: int
    total: int
    memory: int  # of the device
    fits: bool


class FitReport(Report):
    """The memory of a model on each GPU, and the bounds of its speed."""

    model: Model
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
    ceilings: SpeedLimits | None  # None: the bandwidth is unknown
    instead: tuple[_FitAlternative, ...] = ()
    notes: tuple[str, ...] = ()
    checkpoint_notes: tuple[str, ...] = ()  # those of the notes that tell how the files differ from the model

    json_fields: ClassVar[tuple[str, ...]] = (
        *("model=model.name", "source=model.source", "fits", "gpu", "count", "layout=layout.tp_and_pp", "dtype", "kv_dtype", "context"),
        *("batch", "per_gpu", "max_context", "max_batch", "decode_ceiling=ceilings.decode.tokens_per_second"),
        *("prefill_ceiling=ceilings.prefill.tokens_per_second", "ceilings", "instead", "notes"),
    )

    @property
    def total(self) -> int:
        """The memory of the most loaded GPU."""
        return max(x.total for x in self.stages)

    @property
    def fits(self) -> bool:
        """Return whether every GPU has enough memory."""
        return self.total <= self.gpu.memory

    @property
    def per_gpu(self) -> Iterator[_GPUMemory]:
        """The memory of every GPU."""
        parts = ("weights", "kv_cache", "activations", "logits", "overhead", "total")
        for x in self.stages:
            for rank in range(x.gpus):
                yield _GPUMemory(
                    gpu=x.stage * x.gpus + rank,
                    stage=x.stage,
                    rank=rank,
                    layers=tuple((first, last - 1) for first, last in x.runs),
                    **{name: getattr(x, name) for name in parts},
                    memory=self.gpu.memory,
                    fits=x.total <= self.gpu.memory,
                )

    @property
    def summary(self) -> str:
        """The verdict with the memory of the most loaded GPU."""
        total, memory = format_giga(self.total, 2**30), format_giga(self.gpu.memory, 2**30)
        verdict = "fits" if self.fits else "does not fit"
        return f"{self.model.name}, {self.context:,} tokens: {verdict}, {total} of {memory} GiB on {gpus_option(self.count, self.gpu)}"

    def html_tables(self) -> Iterable[str]:
        """The parts of the memory of each stage."""
        parts = ("weights", "kv_cache", "activations", "logits", "overhead", "total")
        rows = [
            (f"stage {x.stage}: {format_count(x.gpus, 'GPU')}", *(format_giga(getattr(x, y), 2**30) for y in parts)) for x in self.stages
        ]
        yield html_table(("GiB on each GPU", "weights", "KV cache", *parts[2:]), rows)


def gpus_option(count: int, device: Device) -> str:
    """Return a number of GPUs as the option `--on` takes it."""
    return device.name if count == 1 or "," in device.name else f"{count}x{device.name}"


def fit(calculator: MemoryCalculator, gpu: Device, count: int = 1, *, tp: int | None = None, pp: int | None = None) -> FitReport:
    """Size a model on GPUs; without `tp` and `pp`, the widest tensor parallelism inside a node is used."""
    layout = choose_layout(calculator.tree, count, gpu.node, tp, pp)
    shards, context, batch = ShardedModel(calculator, layout), calculator.context, calculator.request.batch
    stages = tuple(shards.stage_memory(context, batch))
    fits = max(x.total for x in stages) <= gpu.memory
    max_context = largest_fitting(lambda n: shards.max_memory(n, batch) <= gpu.memory)
    return FitReport(
        model=calculator.model,
        gpu=gpu,
        count=count,
        layout=layout,
        dtype=AS_STORED if calculator.stored else calculator.packer.name,
        kv_dtype=calculator.kv_dtype,
        context=context,
        batch=batch,
        stages=stages,
        max_context=max_context,
        max_batch=largest_fitting(lambda n: shards.max_memory(context, n) <= gpu.memory),
        ceilings=speed_limits(shards, gpu, context, batch) if gpu.bandwidth else None,
        instead=() if fits else tuple(_alternatives(calculator, gpu, count, max_context)),
        notes=(*_layout_notes(shards, context), *calculator.notes),
        checkpoint_notes=calculator.checkpoint_notes,
    )


def choose_layout(tree: Decoder, count: int, node: int, tp: int | None = None, pp: int | None = None) -> Layout:
    """Return the requested layout, or the widest tensor parallelism in a node that divides the model, and a pipeline of the rest."""
    if tp is not None or pp is not None:
        return _requested_layout(tree, count, tp, pp)
    for ranks in reversed(tp_degrees(tree)):
        layout = Layout(tp=ranks, pp=count // ranks)
        if ranks <= node and count % ranks == 0 and layout.pp <= _max_pp(tree) and not layout_problems(tree, layout):
            return layout
    raise LlamathError(
        f"one copy of the model cannot be split over {count:,} GPUs: {_allowed_tp(tree)}; a pipeline has at most {_max_pp(tree):,} stages",
        hint="more GPUs serve additional replicas: size a single replica",
    )


def _requested_layout(tree: Decoder, count: int, tp: int | None, pp: int | None) -> Layout:
    ranks = tp if tp is not None else max(count // (pp or 1), 1)
    depth = pp if pp is not None else max(count // ranks, 1) if ranks > 0 else 1
    if ranks < 1 or depth < 1 or ranks * depth != count:
        raise LlamathError(f"TP {ranks} × PP {depth} is {ranks * depth:,} GPUs, not {count:,}", hint="their product is the number of GPUs")
    layout = Layout(tp=ranks, pp=depth)
    if depth > _max_pp(tree):
        raise LlamathError(f"PP {depth:,}: the model has {int(tree.layers.n):,} layers", hint=f"at most {_max_pp(tree):,} stages")
    if problems := layout_problems(tree, layout):
        pipeline = Layout(pp=count)
        even = "" if layout_problems(tree, pipeline) else f"; pp={count} is a pipeline of {_layers_per_stage(tree, pipeline)} layers"
        raise LlamathError(f"the model cannot be split like this: {'; '.join(problems)}", hint=f"{_allowed_tp(tree)}{even}")
    return layout


def tp_degrees(tree: Decoder) -> list[int]:
    """Return every degree of tensor parallelism that divides the model, up to `MAX_TP`."""
    common = gcd(*(x.split.parts for x in fold(tree) if x.split and not x.split.on_indivisible))
    return [n for n in range(1, MAX_TP + 1) if common % n == 0 and not layout_problems(tree, Layout(tp=n))]


def _max_pp(tree: Decoder) -> int:
    """Return the most stages of a pipeline: one for each layer."""
    return min(int(tree.layers.n), MAX_PP)


def _allowed_tp(tree: Decoder) -> str:
    """Return the tensor parallelism that divides the heads, and the whole model, as text."""
    degrees = tp_degrees(tree)
    heads = {x.split.parts for x in fold(tree) if x.split and x.split.unit == "heads"}
    text = f"TP can be {format_list(degrees)}"
    if len(heads) == 1:
        (n,) = heads
        divisors = [i for i in range(1, min(n, MAX_TP) + 1) if n % i == 0]
        others = [x.split for x in fold(tree) if x.split and x.split.parts != n and not x.split.on_indivisible]
        rest = sorted({f"{x.parts:,} {UNIT_NAMES.get(x.unit, f'of {x.unit}')}" for x in others if any(x.parts % i for i in divisors)})
        if set(divisors) - set(degrees):
            text += f" ({n} heads alone: {format_list(divisors)}; but {', '.join(rest)})"
    return text


def _layers_per_stage(tree: Decoder, layout: Layout) -> str:
    return " + ".join(str(x.layers) for x in pipeline_stages(tree, layout))


def _layout_notes(shards: ShardedModel, context: int) -> Iterator[str]:
    tree, layout = shards.tree, shards.layout
    if layout.pp > 1:
        pure_tp = Layout(tp=layout.tp * layout.pp)
        problems = [x for x in layout_problems(tree, pure_tp) if "heads" in x] or layout_problems(tree, pure_tp)
        why = f"TP {pure_tp.tp} does not divide the model ({problems[0].partition(': ')[2]}): " if problems else ""
        yield f"{why}a pipeline of {_layers_per_stage(tree, layout)} layers" + (f"; {_allowed_tp(tree)}" if problems else "")
    one_copy = sum_cache_specs(shards.calculator.cache_specs, context, 1, shards.calculator.kv_dtype).bytes
    all_ranks = layout.tp * sum(shards.kv_cache(i, context, 1) for i in range(len(shards.stages)))
    if one_copy and all_ranks > 1.01 * one_copy:
        yield f"TP {layout.tp} keeps {all_ranks / one_copy:.3g} copies of the KV cache, which cannot be split over as many ranks"


def _alternatives(calculator: MemoryCalculator, gpu: Device, count: int, max_context: int | None) -> Iterator[_FitAlternative]:
    """Yield single changes with which the model fits: a smaller dtype, a shorter context, a smaller cache, other GPUs."""
    yield from _smaller_dtypes(calculator, gpu, count)
    if max_context and (total := _max_memory(calculator, gpu, count, max_context)):
        what = f"{format_count(max_context, 'token')} instead of {calculator.context:,}"
        yield _FitAlternative(change=f"--context {max_context}", what=what, total=total)
    if calculator.kv_dtype not in ("fp8", "int8"):
        smaller = MemoryCalculator(calculator.model, calculator.request.replace(kv_dtype="fp8"), calculator.stored)
        if (total := _max_memory(smaller, gpu, count)) and total <= gpu.memory:
            yield _FitAlternative(change="--kv-dtype fp8", what="the KV cache in 8 bits", total=total)
    yield from _other_gpus(calculator, gpu, count)


def _smaller_dtypes(calculator: MemoryCalculator, gpu: Device, count: int) -> Iterator[_FitAlternative]:
    """Yield the two largest of the smaller dtypes that fit."""
    num_found, current = 0, sum(x.bytes for x in calculator.weights)
    has_experts = any(x.num_experts for x in fold(calculator.tree))
    for name in _SMALLER_DTYPES if has_experts else [x for x in _SMALLER_DTYPES if x != "mxfp4"]:
        smaller = MemoryCalculator(calculator.model, calculator.request.replace(dtype=name))
        try:
            weights, total = sum(x.bytes for x in smaller.weights), _max_memory(smaller, gpu, count)
        except LlamathError:
            continue
        if weights < current and total and total <= gpu.memory and num_found < 2:
            num_found += 1
            yield _FitAlternative(change=f"--dtype {name}", what=f"weights of {weights / 1e9:,.1f} GB in all", total=total)


def _other_gpus(calculator: MemoryCalculator, gpu: Device, count: int) -> Iterator[_FitAlternative]:
    """Yield the smallest larger number of the same GPU, and the smallest larger GPU in the same number."""
    for n in _GPU_COUNTS:
        full_nodes = n <= gpu.node or n % gpu.node == 0
        if n > count and full_nodes and (total := _max_memory(calculator, gpu, n)) and total <= gpu.memory:
            yield _FitAlternative(change=f"--on {gpus_option(n, gpu)}", what="more of these GPUs", total=total)
            break
    for other in sorted(devices(), key=lambda x: x.memory):
        if other.memory > gpu.memory and (total := _max_memory(calculator, other, count)) and total <= other.memory:
            what = f"the smallest that fits, {other.memory / 2**30:.1f} GiB each"
            yield _FitAlternative(change=f"--on {gpus_option(count, other)}", what=what, total=total)
            break


def _max_memory(calculator: MemoryCalculator, gpu: Device, count: int, context: int | None = None) -> int | None:
    """Return the memory of the most loaded GPU; None if the model cannot be split over that many."""
    try:
        layout = choose_layout(calculator.tree, count, gpu.node)
    except LlamathError:
        return None
    return ShardedModel(calculator, layout).max_memory(context or calculator.context, calculator.request.batch)
