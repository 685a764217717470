"""`cost`: money, energy and CO₂ of a million tokens, and GPU-hours of a training run, as
intervals with their assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ....hardware import Device, unknown_bandwidth
from ....questions.layout import Layout
from ....questions.serving_questions import CostQuestion, Price
from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table, Text
from ....utils.errors import Argument, LlamathError
from ....utils.number_format import format_count
from ....utils.record_type import Record
from ...graph.flop_count import train_flops
from ...graph.recorder import record
from ..fit.fit_report import FitReport, fit
from ..fit.fit_words import gpus_option, split_text
from ..fit.format_support import format_notes
from ..memory.inference_memory import MemoryCalculator
from .ecologits import WORLD_GRID, EcoLogits, ecologits
from .published_shares import GENERATION, TRAINING, Interval

if TYPE_CHECKING:
    from ....model import FamilyModel

_MILLION = 10**6
_HOUR = 3600


class GenerationCost(Record):
    """The cost of a million generated tokens on all GPUs together, their prompts included."""

    prompt: int  # tokens of a prompt
    output: int  # generated tokens of a sequence
    batch: int  # sequences at once, over all replicas
    bound: float  # tokens per second that no run passes
    rate: Interval  # tokens per second of published runs
    price_bound: float | None
    price: Interval | None  # None: no price was given
    energy: Interval | None  # Wh; None: the power of the board is unknown
    co2: EcoLogits


class TrainingCost(Record):
    """The cost of a training run."""

    tokens: int
    flops: int
    gpu_hours: Interval
    price: Interval | None
    energy: Interval | None  # kWh


class CostReport(Report):
    """What a model costs on GPUs."""

    model: FamilyModel
    gpu: Device
    count: int
    layout: Layout
    replicas: int
    dtype: str
    price: Price | None
    generation: GenerationCost
    training: TrainingCost | None
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "source=model.source",
            "gpu",
            "count",
            "layout=layout.tp_and_pp",
            "replicas",
            "dtype",
            "price",
        ),
        *("generation", "training", "assumptions", "notes"),
    )

    @property
    def summary(self) -> str:
        """The price of a million tokens, or their energy."""
        where, found = gpus_option(self.count, self.gpu), self.generation
        if found.price is not None and self.price is not None:
            text = f"{format_interval(found.price, self.price.currency)} for a million tokens"
        elif found.energy is not None:
            text = f"{format_interval(found.energy.scaled(1e-3))} kWh for a million tokens"
        else:
            text = f"{format_interval(found.rate)} tokens/s"
        return (
            f"{self.model.name} on {where}, {found.batch:,} sequences of {found.prompt:,} + "
            f"{found.output:,} tokens: {text}"
        )

    @property
    def headline(self) -> str:
        """The model and the GPUs."""
        return f"{self.model.name} on {self.count:,} × {self.gpu.title}"

    @property
    def setting(self) -> str:
        """The layout and the sequences."""
        found = self.generation
        replicas = f" × {self.replicas:,} replicas" if self.replicas > 1 else ""
        sequences = format_count(found.batch, "sequence")
        return (
            f"{self.dtype}; {split_text(self.layout)}{replicas}; {sequences} of "
            f"{found.prompt:,} + {found.output:,} tokens at once; from {self.model.source}"
        )

    def tables(self) -> Iterable[Part]:
        """What a million generated tokens cost, and a training run."""
        yield Table(columns=_GENERATION, rows=tuple(self._generation()))
        if (found := self.training) is not None:
            yield Table(
                title=f"training on {found.tokens:,} tokens, {found.flops:.3g} FLOPs",
                columns=_TRAINING,
                rows=tuple(self._training(found)),
            )
        yield Text("assumed: " + "; ".join(self.assumptions), "dim", apart=True)

    def _generation(self) -> Iterator[tuple[Any, ...]]:
        found, sign = self.generation, self._currency
        rates = Cell(found.bound, "rate")
        yield "tokens/s, all GPUs", *_interval(found.rate), rates
        if found.price is not None and found.price_bound is not None:
            bound = Cell(found.price_bound, text=f"{sign}{found.price_bound:.3g}")
            yield "price, prompts included", *_interval(found.price, sign), bound
        if found.energy is not None:
            yield "kWh of the boards", *_interval(found.energy.scaled(1e-3)), None
        yield "kWh, EcoLogits", *_interval(found.co2.energy), None
        yield "kg CO₂e, EcoLogits", *_interval(found.co2.co2), None

    def _training(self, found: TrainingCost) -> Iterator[tuple[Any, ...]]:
        yield "GPU-hours", *_interval(found.gpu_hours)
        yield "days on these GPUs", *_interval(found.gpu_hours.scaled(1 / 24 / self.count))
        if found.price is not None:
            yield "price", *_interval(found.price, self._currency)
        if found.energy is not None:
            yield "MWh of the boards", *_interval(found.energy.scaled(1e-3))

    @property
    def _currency(self) -> str:
        return self.price.currency if self.price else ""


_TRAINING = (
    Column("", key="of"),
    Column("like published runs", "right", ""),
    Column("low", shown=False),
    Column("high", shown=False),
)
_GENERATION = (
    Column("a million generated tokens", key="of"),
    *_TRAINING[1:],
    Column("at the bound", "right", "bound"),
)


def _interval(x: Interval, unit: str = "") -> tuple[str, float, float]:
    return format_interval(x, unit), x.low, x.high


class CostRequest(Record):
    """What is asked of `cost`."""

    output: int = CostQuestion.max_tokens  # generated tokens of a sequence
    batch: int | None = None  # None: as many sequences as fit
    price: Price | None = None
    train_tokens: int | None = None


def cost(calculator: MemoryCalculator, gpu: Device, count: int, request: CostRequest) -> CostReport:
    """Return what a model costs on GPUs; the context of the calculator has the prompt and the
    generated tokens.
    """
    if not gpu.bandwidth:
        raise unknown_bandwidth("a cost", gpu)
    context = calculator.context
    if not 0 < request.output < context:
        raise LlamathError(
            f"output of {request.output:,} tokens in a context of {context:,}",
            hint=f"fewer output tokens, or a longer {Argument('context')}",
        )
    found = fit(calculator, gpu, count)
    if not found.fits:
        change = f"it fits with {found.instead[0].change}" if found.instead else "no change fits"
        raise LlamathError(f"{found.summary}", hint=change)
    batch = request.batch or max(found.max_batch or 1, 1)
    if found.max_batch is not None and batch > found.max_batch:
        raise LlamathError(
            f"{batch:,} sequences of {context:,} tokens do not fit, {found.max_batch:,} do"
        )
    bound = _generation_bound(
        calculator, gpu, found, batch, context - request.output, request.output
    )
    rate = Interval(low=bound * GENERATION.low, high=bound * GENERATION.high)
    hourly = None if request.price is None else request.price.amount * count
    watts = gpu.power * count or None
    parameters = calculator.model.parameters
    generation = GenerationCost(
        prompt=context - request.output,
        output=request.output,
        batch=batch,
        bound=bound,
        rate=rate,
        price_bound=None if hourly is None else _per_million(hourly, bound),
        price=None
        if hourly is None
        else Interval(low=_per_million(hourly, rate.high), high=_per_million(hourly, rate.low)),
        energy=None
        if watts is None
        else Interval(low=_per_million(watts, rate.high), high=_per_million(watts, rate.low)),
        co2=ecologits(parameters.active, parameters.total, _MILLION),
    )
    return CostReport(
        model=calculator.model,
        gpu=gpu,
        count=count,
        layout=found.layout,
        replicas=found.replicas,
        dtype=found.dtype,
        price=request.price,
        generation=generation,
        training=None if request.train_tokens is None else _training(calculator, gpu, request),
        assumptions=tuple(_assumptions(gpu, request)),
        notes=(*format_notes(calculator.packer, [gpu]), *found.checkpoint_notes),
    )


def _per_million(hourly: float, rate: float) -> float:
    return hourly / (rate * _HOUR) * _MILLION


def _generation_bound(
    calculator: MemoryCalculator,
    gpu: Device,
    found: FitReport,
    batch: int,
    prompt: int,
    output: int,
) -> float:
    """Return the generated tokens per second that a batch cannot pass: its prefill, then decode
    at every eighth of the way.
    """
    from ..memory.gpu_shards import ShardedModel
    from ..memory.speed_limits import decode_limit, find_roof, speed_limits

    shards, each = ShardedModel(calculator, found.layout), -(-batch // found.replicas)
    limits = speed_limits(shards, gpu, prompt, each)
    roof = find_roof(gpu, calculator.packer.name, calculator.packer.compute_dtype)
    steps = min(output, 8)
    middles = [prompt + (2 * i + 1) * output // (2 * steps) for i in range(steps)]
    seconds = (
        sum(decode_limit(shards, roof, max(n, 1), each).seconds for n in middles) * output / steps
    )
    seconds += limits.prefill.seconds if limits.prefill is not None else 0.0
    groups = min(found.layout.pp, each)  # of sequences, in different stages of the pipeline
    return batch * output / (seconds / groups if groups > 1 else seconds)


def _training(calculator: MemoryCalculator, gpu: Device, request: CostRequest) -> TrainingCost:
    """Return the GPU-hours of a run, from the exact FLOPs of a step and the share of the peak
    that published runs reached.
    """
    peak = gpu.flops.get("bf16") or gpu.flops.get("fp16")
    if not peak:
        raise LlamathError(
            f"{gpu.title} has no published bf16 FLOP/s, so the GPU-hours of training are unknown"
        )
    tokens, context = request.train_tokens or 0, calculator.context
    graph = record(calculator.tree)
    flops = int(train_flops(graph).model.evaluate(B=1, T=context, P=0)) * tokens // context
    hours = Interval(
        low=flops / (peak * TRAINING.high * _HOUR), high=flops / (peak * TRAINING.low * _HOUR)
    )
    price = None if request.price is None else hours.scaled(request.price.amount)
    return TrainingCost(
        tokens=tokens,
        flops=flops,
        gpu_hours=hours,
        price=price,
        energy=hours.scaled(gpu.power / 1e3) if gpu.power else None,
    )


def _assumptions(gpu: Device, request: CostRequest) -> Iterable[str]:
    yield (
        f"generation reaches {GENERATION.low:.0%} to {GENERATION.high:.0%} of its bound, "
        f"{GENERATION.source}"
    )
    if request.train_tokens is not None:
        yield (
            f"training reaches {TRAINING.low:.0%} to {TRAINING.high:.0%} of the peak in bf16, "
            f"{TRAINING.source}"
        )
    if gpu.power:
        yield (
            f"energy: every GPU draws its board power, {gpu.power:,} W; hosts, network and "
            "cooling are not counted"
        )
    yield (
        "CO₂ by EcoLogits 0.11.3: from the parameters alone, PUE 1.09 to 1.2, "
        f"{WORLD_GRID:g} kg CO₂e per kWh, hardware included"
    )
    yield "GPUs are busy all the time; prompts that repeat are not cached; no speculative decoding"


def format_interval(x: Interval, unit: str = "") -> str:
    """Return an interval to two or three digits: `$0.12 to $0.20`."""
    return f"{unit}{_digits(x.low)} to {unit}{_digits(x.high)}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
