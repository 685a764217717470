"""`fit`: check whether a model fits the memory of GPUs for inference, choose the split, and
suggest changes that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from ...hardware import Device
from ...utils.errors import LlamathError
from ...utils.number_format import format_count, format_giga
from ...utils.record_type import Record
from ...utils.report import Report, html_table
from ..inference.cache_bytes import sum_cache_specs
from ..inference.gpu_shards import StageMemory
from ..inference.inference_memory import AS_STORED, MemoryCalculator, largest_fitting
from ..inference.speed_limits import SpeedLimits, host_bandwidth, mixed_speed_limits, speed_limits
from ..parallel_layout import Layout
from .calibration import Calibration, ExpectedSpeed
from .mixed_machine import MixedMachine
from .serving_layouts import LayoutChooser, ServingLayout, choose_layout, layout_notes
from .suggestions import Suggester, Suggestion, gpus_option

if TYPE_CHECKING:
    from ...model import Model


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
            x.total <= gpu.memory for x, gpu in zip(self.stages, self.stage_gpus, strict=True)
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
                    fits=x.total <= gpu.memory,
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

    def html_tables(self) -> Iterable[str]:
        """The parts of the memory of each stage."""
        parts = ("weights", "kv_cache", "activations", "logits", "overhead", "total")
        rows = [
            (
                f"stage {x.stage}: {format_count(x.gpus, 'GPU')}",
                *(format_giga(getattr(x, y), 2**30) for y in parts),
            )
            for x in self.stages
        ]
        yield html_table(("GiB on each GPU", "weights", "KV cache", *parts[2:]), rows)


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
        raise LlamathError(
            f"offload: {gpu.title} shares its memory with the host",
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
        notes=(*layout_notes(shards, replicas, context, cache_of_one_copy), *calculator.notes),
        checkpoint_notes=calculator.checkpoint_notes,
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
