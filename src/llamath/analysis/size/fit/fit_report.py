"""`fit`: check whether a model fits the memory of GPUs for inference, choose the split, and
suggest changes that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ....hardware import Device
from ....questions.layout import Layout
from ....render.report import Report
from ....render.tables import Bar, Bars, Cell, Column, Part, Table, Text, heading
from ....utils.errors import Argument, ArgumentError
from ....utils.number_format import format_bytes, format_count, format_giga, format_rate
from ....utils.record_type import Record
from ..memory.cache_bytes import sum_cache_specs
from ..memory.gpu_shards import StageMemory
from ..memory.inference_memory import AS_STORED, MemoryCalculator, largest_fitting
from ..memory.speed_limits import (
    SpeedLimit,
    SpeedLimits,
    host_bandwidth,
    mixed_speed_limits,
    speed_limits,
)
from .calibration import Calibration, ExpectedSpeed
from .fit_rules import left_of
from .fit_words import format_sequences, gpus_option, split_text
from .format_support import format_notes
from .mixed_machine import MixedMachine
from .serving_layouts import LayoutChooser, ServingLayout, choose_layout, layout_notes
from .suggestions import Suggester, Suggestion

if TYPE_CHECKING:
    from ....model import FamilyModel


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

    model: FamilyModel
    gpu: Device
    count: int
    layout: Layout
    replicas: int
    offload: int  # bytes of the weights of each GPU that stay on the host
    dtype: str
    kv_dtype: str
    context: int
    batch: int
    stages: tuple[StageMemory, ...]
    stage_gpus: tuple[Device, ...]  # one of the GPUs of each stage
    max_context: int | None  # None: any
    max_batch: int | None
    ceilings: SpeedLimits | None  # None: the bandwidth is unknown
    instead: tuple[Suggestion, ...] = ()
    expected: ExpectedSpeed | None = None  # at the shares of the limits that were measured
    notes: tuple[str, ...] = ()
    # those of the notes that tell how the files differ from the model
    checkpoint_notes: tuple[str, ...] = ()

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "source=model.source",
            "fits",
            "gpu",
            "count",
            "layout=layout.tp_and_pp",
            "replicas",
            "offload",
            "dtype",
            "kv_dtype",
            "context",
        ),
        *(
            "batch",
            "per_gpu",
            "max_context",
            "max_batch",
            "decode_ceiling=ceilings.decode.tokens_per_second",
        ),
        *(
            "prefill_ceiling=ceilings.prefill.tokens_per_second",
            "ceilings",
            "expected",
            "instead",
            "notes",
        ),
    )

    @property
    def total(self) -> int:
        """The memory of the most loaded GPU."""
        return max(x.total for x in self.stages)

    @property
    def fullest(self) -> tuple[StageMemory, Device]:
        """The stage whose GPUs have the least room, and one of these."""
        return max(
            zip(self.stages, self.stage_gpus, strict=True), key=lambda x: x[0].total / x[1].memory
        )

    @property
    def fits(self) -> bool:
        """Return whether every GPU has enough memory."""
        return all(
            left_of(gpu.memory, x.total) >= 0
            for x, gpu in zip(self.stages, self.stage_gpus, strict=True)
        )

    @property
    def per_gpu(self) -> Iterator[_GPUMemory]:
        """The memory of every GPU."""
        parts = ("weights", "kv_cache", "activations", "logits", "overhead", "total")
        for x, gpu in zip(self.stages, self.stage_gpus, strict=True):
            for rank in range(x.gpus):
                yield _GPUMemory(
                    gpu=x.stage * x.gpus + rank,
                    stage=x.stage,
                    rank=rank,
                    layers=tuple((first, last - 1) for first, last in x.runs),
                    **{name: getattr(x, name) for name in parts},
                    memory=gpu.memory,
                    fits=left_of(gpu.memory, x.total) >= 0,
                )

    @property
    def summary(self) -> str:
        """The verdict with the memory of the most loaded GPU."""
        most, gpu = self.fullest
        total, memory = format_giga(most.total, 2**30), format_giga(gpu.memory, 2**30)
        verdict = "fits" if self.fits else "does not fit"
        return (
            f"{self.model.name}, {self.context:,} tokens: {verdict}, {total} of {memory} GiB "
            f"on {gpus_option(self.count, self.gpu)}"
        )

    @property
    def headline(self) -> str:
        """The verdict."""
        count = f"{self.count:,} ×" if self.count > 1 else "one"
        where = self.gpu.title if self.gpu.members else f"{count} {self.gpu.title}"
        return f"{self.model.name} {'fits' if self.fits else 'does not fit'} on {where}"

    @property
    def setting(self) -> str:
        """The dtypes, the sequences and the layout."""
        own = " (the model's own context)" if self.context == self.model.tree.context else ""
        split = split_text(self.layout)
        split += f" × {self.replicas:,} replicas" if self.replicas > 1 else ""
        if self.offload:
            split += f"; {format_bytes(self.offload)} of the weights of each GPU on the host"
        return (
            f"{self.dtype}, cache in {self.kv_dtype}; "
            f"{format_sequences(self.batch, self.context)}{own}; {split}; from {self.model.source}"
        )

    def __bool__(self) -> bool:
        return self.fits

    def tables(self) -> Iterable[Part]:
        """The memory of each GPU, the free memory or the changes with which it fits, and the
        limits of the speed.
        """
        stages = list(zip(self.stages, self.stage_gpus, strict=True))
        yield Bars(tuple(self._bar(x, gpu) for x, gpu in stages), _MARKS)
        yield Table(columns=_COLUMNS, rows=tuple(self._cells(x, gpu) for x, gpu in stages))
        yield from self._room() if self.fits else self._changes()
        yield from self._speed()

    def _label(self, stage: StageMemory) -> str:
        if self.count == 1:
            return "GPU"
        first = stage.stage * stage.gpus
        return f"GPU {first}" + (f"–{first + stage.gpus - 1}" if stage.gpus > 1 else "")

    def _bar(self, stage: StageMemory, gpu: Device) -> Bar:
        total, memory = (format_giga(x, 2**30) for x in (stage.total, gpu.memory))
        verdict = f"{total} of {memory} GiB{'' if stage.total <= gpu.memory else ' ✗'}"
        return Bar(self._label(stage), _parts(stage), gpu.memory, verdict)

    def _cells(self, stage: StageMemory, gpu: Device) -> tuple[Any, ...]:
        layers = tuple((a, b - 1, 1) for a, b in stage.runs) if self.layout.pp > 1 else None
        total = stage.total
        return (self._label(stage), layers, *_parts(stage), total, gpu.memory, total <= gpu.memory)

    def _room(self) -> Iterator[Part]:
        own, most = self.model.tree.context, self.max_context
        tokens = "any number of tokens" if most is None else f"up to {format_count(most, 'token')}"
        if own and (most is None or most > own):
            tokens += f" (the model's own context is {own:,})"
        batch = (
            "any number of sequences"
            if self.max_batch is None
            else f"up to {format_count(self.max_batch, 'sequence')}"
        )
        sequences = format_count(self.batch, "sequence")
        yield heading("free memory")
        yield Text(
            f"fits {sequences} of {tokens}, or {batch} of {self.context:,} tokens", indent="  "
        )

    def _changes(self) -> Iterator[Part]:
        if self.instead:
            yield Table(
                title="fits with one of these changes, least loss first",
                columns=_CHANGES,
                rows=tuple((x.change, x.what, x.total) for x in self.instead),
            )
            return
        yield heading("no change fits")
        yield Text(
            "tried: dtypes that the GPU supports, fewer tokens, an 8-bit KV cache, weights on the "
            "host, more of these GPUs, larger GPUs",
            indent="  ",
        )

    def _speed(self) -> Iterator[Part]:
        if self.ceilings is None:
            unknown = (x.title for x in self.stage_gpus if not x.bandwidth)
            text = f"speed: unknown, as the memory bandwidth of {next(unknown)} is"
            yield Text(f"{text}; bw=500GB/s after its name gives one", apart=True)
            return
        limits = self.ceilings
        yield Table(
            title="speed limits: upper bounds, not predictions",
            columns=_SPEEDS,
            rows=tuple(self._speeds(limits)),
        )
        yield Text("assumed: " + "; ".join(limits.assumptions), "dim")

    def _speeds(self, limits: SpeedLimits) -> Iterator[tuple[Any, ...]]:
        decode, prefill, expected = limits.decode, limits.prefill, self.expected
        where = "in all stages, one after another" if self.layout.pp > 1 else "on each GPU"
        each = decode.tokens_per_second / self.batch if self.batch > 1 else None
        context = f"at {format_count(self.context, 'token')} of context"
        because = f"{context}: {_reason(decode, where)}"
        yield "decode", decode.tokens_per_second, each, None, because
        if prefill is None:
            unknown = Cell(None, text="unknown")
            yield "prefill", unknown, None, None, "no FLOP/s are known for this GPU"
        else:
            sequences = format_sequences(self.batch, self.context)
            where = "in the slowest stage" if self.gpu.members else "on each GPU"
            because = f"{sequences}: {_reason(prefill, where)}"
            yield "prefill", prefill.tokens_per_second, None, prefill.seconds, because
        if expected is not None:
            yield "expected decode", expected.decode, None, None, expected.source
            if expected.prefill is not None:
                yield "expected prefill", expected.prefill, None, None, ""


_PARTS = ("weights", "kv_cache", "activations", "logits", "overhead")
_MARKS = (
    ("weights", "█"),
    ("KV cache", "▓"),
    ("activations, logits", "▒"),
    ("", "▒"),
    ("overhead", "░"),
)
_COLUMNS = (
    Column("GiB each", key="gpus"),
    Column("layers", "layers", drop=1),
    Column("weights", "GiB"),
    Column("KV cache", "GiB", "kv_cache"),
    Column("activations", "GiB", drop=3),
    Column("logits", "GiB", drop=2),
    Column("overhead", "GiB"),
    Column("total", "GiB"),
    Column("of", "GiB", "memory"),
    Column("fits", shown=False),
)
_CHANGES = (Column("change"), Column("what", drop=1), Column("GiB", "GiB", "total"))
_SPEEDS = (
    Column("", key="pass"),
    Column("tokens/s", "rate", "tokens_per_second"),
    Column("of each sequence", ".1", drop=1),
    Column("seconds", "3 digits"),
    Column("because", below=True),
)


def _parts(stage: StageMemory) -> tuple[int, ...]:
    return tuple(getattr(stage, x) for x in _PARTS)


def _reason(limit: SpeedLimit, where: str) -> str:
    if limit.bound == "memory":
        return f"memory-bound, {format_bytes(limit.bytes)} read in a pass {where}"
    return f"compute-bound, {format_rate(limit.flops / 1e12)} TFLOP {where}"


def fit(
    calculator: MemoryCalculator,
    gpu: Device,
    count: int = 1,
    *,
    tp: int | None = None,
    pp: int | None = None,
    offload: int = 0,
    calibration: Calibration | None = None,
) -> FitReport:
    """Size a model on GPUs.

    Without `tp` and `pp`, the split is the first that fits: the widest tensor parallelism inside a
    node, a longer pipeline, then several replicas. `offload` are the bytes of weights of each GPU
    that stay in the memory of the host; a `calibration` gives the expected speed.
    """
    if offload and not host_bandwidth(gpu):
        raise ArgumentError(
            "offload",
            f": {gpu.title} shares its memory with the host",
            hint="a smaller dtype, or a shorter context",
        )
    if gpu.members and (tp or 1) == 1 and pp in (None, count) and not offload:
        return _fit_mixed(calculator, gpu, count)
    context, batch = calculator.context, calculator.request.batch
    chooser = LayoutChooser(calculator, offload)
    if tp is not None or pp is not None:
        chosen = ServingLayout(choose_layout(calculator.tree, count, gpu.node, tp, pp), 1)
    else:
        chosen = choose_split(chooser, gpu, count, context, batch)
    shards, replicas = chooser.shards(chosen.layout), chosen.replicas
    each = chosen.sequences(batch)
    stages = tuple(shards.stage_memory(context, each))
    fits = max(x.total for x in stages) <= gpu.memory
    most = largest_fitting(lambda n: shards.max_memory(context, n) <= gpu.memory)
    cache_of_one_copy = sum_cache_specs(
        calculator.cache_specs, context, 1, calculator.kv_dtype
    ).bytes
    limits = speed_limits(shards, gpu, context, each) if gpu.bandwidth else None
    return FitReport(
        model=calculator.model,
        gpu=gpu,
        count=count,
        layout=shards.layout,
        replicas=replicas,
        offload=offload,
        dtype=AS_STORED if calculator.stored else calculator.packer.name,
        kv_dtype=calculator.kv_dtype,
        context=context,
        batch=batch,
        stages=stages,
        stage_gpus=(gpu,) * len(stages),
        max_context=largest_fitting(lambda n: shards.max_memory(n, each) <= gpu.memory),
        max_batch=None if most is None else most * replicas,
        ceilings=limits,
        expected=None if calibration is None or limits is None else calibration.expected(limits),
        instead=() if fits else tuple(Suggester(calculator, gpu, count).suggestions()),
        notes=(
            *layout_notes(shards, replicas, context, cache_of_one_copy),
            *_shared_memory(gpu),
            *format_notes(calculator.packer, [gpu]),
            *calculator.notes,
        ),
        checkpoint_notes=calculator.checkpoint_notes,
    )


def _shared_memory(gpu: Device) -> Iterator[str]:
    if gpu.unified and gpu.memory == gpu.nominal:
        yield (
            f"{gpu.title} shares its memory with the system and its programs, which need a part: "
            f"{Argument('on', f'{gpu.name} mem=24GiB')} says how much is left"
        )


def _fit_mixed(calculator: MemoryCalculator, gpu: Device, count: int) -> FitReport:
    """Size a model on different GPUs, each of which is a stage of a pipeline."""
    context, batch = calculator.context, calculator.request.batch
    machine = MixedMachine(calculator, gpu.members)
    shards = machine.shards(context, batch)
    fits = machine.fits(context, batch)
    return FitReport(
        model=calculator.model,
        gpu=gpu,
        count=count,
        layout=machine.layout,
        replicas=1,
        offload=0,
        dtype=AS_STORED if calculator.stored else calculator.packer.name,
        kv_dtype=calculator.kv_dtype,
        context=context,
        batch=batch,
        stages=tuple(shards.stage_memory(context, batch)),
        stage_gpus=machine.gpus,
        max_context=machine.max_context(batch),
        max_batch=machine.max_batch(context),
        ceilings=mixed_speed_limits(shards, machine.gpus, context, batch)
        if all(x.bandwidth for x in machine.gpus)
        else None,
        instead=() if fits else tuple(Suggester(calculator, gpu, count).suggestions()),
        notes=(
            f"a pipeline of {' + '.join(str(x.layers) for x in shards.stages)} layers, by memory",
            *format_notes(calculator.packer, [gpu]),
            *calculator.notes,
        ),
        checkpoint_notes=calculator.checkpoint_notes,
    )


def choose_split(
    chooser: LayoutChooser, gpu: Device, count: int, context: int, batch: int
) -> ServingLayout:
    """Return the first split that fits, else the one whose most loaded GPU needs the least."""

    def needed(x: ServingLayout) -> int:
        return chooser.shards(x.layout).max_memory(context, x.sequences(batch))

    found = chooser.first_fitting(count, gpu.node, lambda _, x: needed(x) <= gpu.memory)
    return found or min(chooser.layouts(count, gpu.node), key=needed)
