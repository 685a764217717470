"""Rank the ways to serve a model on a cluster: TP × PP × replicas, by memory and by the upper
bounds on decode speed.

Each replica takes as many sequences as fit into its GPUs, or as many as meet a latency; with a
pipeline, sequences are processed in as many groups as there are stages, or one by one if fewer fit.
Speeds are upper bounds (`speed_limits`), not predictions: communication is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from ....engines import format_version
from ....hardware import Device
from ....questions.layout import Layout
from ....questions.plan_questions import ServingPlanQuestion
from ....render.report import Report
from ....render.tables import Part
from ....utils.errors import Argument, ArgumentError, Call, LlamathError, Name
from ....utils.number_format import format_count
from ....utils.record_type import Record
from ...storage.parallel_layout import layout_problems, pipeline_stages
from ..fit.format_support import format_notes
from ..fit.serving_layouts import MAX_TP, serving_layouts, tp_degrees
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator, largest_fitting
from ..memory.speed_limits import Bound, decode_limit, find_roof
from ..serving.engine_report import EngineSettings, plan_engine
from ..serving.rank_shapes import EngineLayout
from .layout_space import Rejected, divisors
from .plan_tables import serving_tables

if TYPE_CHECKING:
    from ....model import FamilyModel

_MAX_LISTED_STAGES = 8
"""Stages are listed one by one up to this number."""
_SERVERS = ("vllm", "sglang")
"""The engines whose commands are printed."""
MAX_BATCH = 2**20
"""The largest number of concurrent sequences of a replica."""


class _ServePlan(Record):
    """One way to split the model over the GPUs of a replica."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "tp=layout.tp",
            "pp=layout.pp",
            "replicas",
            "batch",
            "memory",
            "seconds_per_token=seconds",
        ),
        *("decode_ceiling_per_gpu=rate", "decode_ceiling", "bound"),
    )

    layout: Layout
    replicas: int
    batch: int  # concurrent sequences of each replica
    memory: int  # bytes on the most loaded GPU
    seconds: float  # lower bound on the time per output token
    rate: float  # upper bound on tokens per second per GPU
    bound: Bound

    @property
    def decode_ceiling(self) -> float:
        """Upper bound on tokens per second of all replicas."""
        return self.rate * (self.layout.gpus * self.replicas)


class ServeCommand(Record):
    """The command line of an engine for one replica, or why it does not start with this split."""

    json_fields: ClassVar[tuple[str, ...]] = ("engine", "version", "command", "why")

    engine: str
    version: str
    command: str
    why: str


class ServeReport(Report):
    """The ranked serving plans, and the splits that are impossible or too large."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "family=model.family.name",
            "source=model.source",
            "device=device.name",
            "gpus",
            "memory=device.memory",
        ),
        *(
            "dtype",
            "kv_dtype",
            "context",
            "latency",
            "plans",
            "commands",
            "rejected",
            "too_large",
            "notes=all_notes",
        ),
    )

    model: FamilyModel
    device: Device
    gpus: int
    context: int
    latency: float | None
    dtype: str
    kv_dtype: str
    plans: tuple[_ServePlan, ...]
    rejected: tuple[Rejected, ...]
    too_large: tuple[Rejected, ...]  # splits that do not fit one sequence, or miss the latency
    commands: tuple[ServeCommand, ...]  # of one replica of the best plan
    notes: tuple[str, ...]
    top: int = ServingPlanQuestion.top  # plans that a terminal shows

    @property
    def fits(self) -> bool:
        """Return whether there is a plan."""
        return bool(self.plans)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes of the plans and of the model."""
        return (*self.notes, *self.model.notes)

    @property
    def summary(self) -> str:
        """The best plan."""
        where = f"{self.model.name} on {self.gpus:,} × {self.device.title}"
        if not self.plans:
            return f"{where}: no split fits"
        best = self.plans[0]
        split = (
            f"{format_count(best.replicas, 'replica')} with TP {best.layout.tp} × PP "
            f"{best.layout.pp}"
        )
        return (
            f"{where}: {split}, {format_count(best.batch, 'sequence')} each, at most "
            f"{best.decode_ceiling:,.0f} tokens/s"
        )

    @property
    def headline(self) -> str:
        """The question."""
        return f"{self.model.name}: plans to serve on {self.gpus:,} × {self.device.title}"

    @property
    def setting(self) -> str:
        """The source, the dtypes, the sequences and the latency."""
        within = (
            f", time per output token at most {self.latency * 1000:g} ms"
            if self.latency is not None
            else ""
        )
        return (
            f"{self.model.family.name} family, from {self.model.source}\n"
            f"weights {self.dtype}, KV cache {self.kv_dtype}; sequences of "
            f"{self.context:,} tokens{within}"
        )

    @property
    def entries(self) -> Sequence[_ServePlan]:
        """The plans, best first."""
        return self.plans

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """The notes of the plans and of the model."""
        return self.all_notes

    def tables(self) -> Iterable[Part]:
        """The ranking, and what is not possible."""
        return serving_tables(self)

    def __bool__(self) -> bool:
        return self.fits


def plan_serving(
    model: FamilyModel,
    sizes: MemoryCalculator,
    on: tuple[int, Device],
    latency: float | None = None,
) -> ServeReport:
    """Rank the splits of a model for serving on a cluster, given as (number of GPUs, device)."""
    gpus, device = on
    if device.members:
        raise LlamathError(
            f"{device.name} are different GPUs: a serving plan is for equal ones",
            hint=f"{Call('fit', Name('model'), on=device.name)} sizes a model on them",
        )
    if latency is not None and not 0 < latency < 10**6:
        raise ArgumentError(
            "latency", " should be positive", hint=f"such as {Argument('latency', '50ms')}"
        )
    rejected: list[Rejected] = []
    too_large: list[Rejected] = []
    plans: list[_ServePlan] = []
    for layout in _possible_splits(model, gpus, device, rejected):
        shards = ShardedModel(sizes, layout)
        plan = _best_batch(shards, on, latency)
        if isinstance(plan, _ServePlan):
            plans.append(plan)
        else:
            too_large.append(plan)
    return ServeReport(
        model=model,
        device=device,
        gpus=gpus,
        context=sizes.context,
        latency=latency,
        dtype="as stored" if sizes.storage is None else sizes.packer.name,
        kv_dtype=sizes.kv_dtype,
        plans=tuple(sorted(plans, key=lambda x: (-x.rate, x.seconds))),
        rejected=tuple(rejected),
        too_large=tuple(too_large),
        commands=tuple(_commands(sizes, device, plans)),
        notes=(
            *_notes(model, plans, rejected),
            *format_notes(sizes.packer, [device]),
        ),
    )


def _commands(
    sizes: MemoryCalculator, device: Device, plans: list[_ServePlan]
) -> Iterator[ServeCommand]:
    """Yield how each engine that runs on several nodes is started with the best split."""
    if not plans:
        return
    best = max(plans, key=lambda x: (x.rate, -x.seconds))
    for name in _SERVERS:
        split = EngineLayout(tp=best.layout.tp, pp=best.layout.pp)
        settings = EngineSettings(layout=split)
        found = plan_engine(sizes, name, device, split.gpus, settings)
        engine = found.engine
        starts = found.verdict != "does not start"
        yield ServeCommand(
            engine=engine.name,
            version=format_version(engine.version),
            command=found.command if starts else "",
            why="" if starts else "; ".join(x.says for x in found.why),
        )


def _notes(model: FamilyModel, plans: list[_ServePlan], rejected: list[Rejected]) -> Iterator[str]:
    """Note how the pipeline splits the layers, stages that idle, and the possible TP degrees if
    some are rejected.
    """
    best = max(plans, key=lambda x: x.rate, default=None)
    if best is not None and 1 < best.layout.pp <= _MAX_LISTED_STAGES:
        yield (
            f"PP {best.layout.pp}: "
            f"{' + '.join(str(x.layers) for x in pipeline_stages(model.tree, best.layout))} layers"
        )
    if best is not None and best.batch < best.layout.pp:
        yield (
            f"{format_count(best.batch, 'sequence')} fit into a pipeline of {best.layout.pp:,} "
            "stages: the others idle"
        )
    if any(x.what.startswith("TP") and "node" not in x.why for x in rejected):
        yield f"TP can be {', '.join(map(str, tp_degrees(model.tree)))}"


def _possible_splits(
    model: FamilyModel, gpus: int, device: Device, rejected: list[Rejected]
) -> Iterator[Layout]:
    """Yield the TP × PP that the model admits and that divide the number of GPUs."""
    for n in divisors(gpus):
        if n > min(device.node, MAX_TP):
            rejected.append(
                Rejected(
                    what=f"TP {n:,}",
                    why=f"a node has {device.node:,} GPUs"
                    if n > device.node
                    else f"more than {MAX_TP}",
                )
            )
        elif why := layout_problems(model.tree, Layout(tp=n)):
            rejected.append(
                Rejected(what=f"TP {n:,}", why=", ".join(x.partition(": ")[2] for x in why))
            )
    layers = int(model.tree.layers.n)
    rejected += [
        Rejected(what=f"PP {n:,}", why=f"{layers:,} layers") for n in divisors(gpus) if n > layers
    ]
    yield from (x.layout for x in serving_layouts(model.tree, gpus, device.node))


def _best_batch(
    shards: ShardedModel, on: tuple[int, Device], latency: float | None
) -> _ServePlan | Rejected:
    """Return the plan with the largest batch that fits and meets the latency, or the reason why
    none does.
    """
    (gpus, device), layout, context = on, shards.layout, shards.calculator.context
    roof = find_roof(device, shards.calculator.packer.name, shards.calculator.packer.compute_dtype)
    name = f"TP {layout.tp} × PP {layout.pp}"

    def fits(n: int) -> bool:
        return n <= MAX_BATCH * layout.pp and shards.max_memory(context, n) <= device.memory

    def meets_latency(n: int) -> bool:
        return latency is None or decode_limit(shards, roof, context, n).seconds <= latency

    if not fits(1):
        return Rejected(
            what=name,
            why=f"{shards.max_memory(context, 1) / 2**30:,.1f} GiB per GPU for {context:,} tokens",
        )
    if not meets_latency(1):
        return Rejected(
            what=name,
            why="at least "
            f"{decode_limit(shards, roof, context, 1).seconds * 1000:.3g} ms per token",
        )
    if fits(layout.pp):
        groups = layout.pp
        group_size = (
            largest_fitting(lambda n: fits(n * groups) and meets_latency(n), MAX_BATCH) or MAX_BATCH
        )
    else:  # some stages idle
        groups, group_size = largest_fitting(fits, layout.pp) or layout.pp, 1
    speed = decode_limit(shards, roof, context, group_size)
    return _ServePlan(
        layout=layout,
        replicas=gpus // (layout.tp * layout.pp),
        batch=group_size * groups,
        memory=shards.max_memory(context, group_size * groups),
        seconds=speed.seconds,
        rate=group_size * groups / speed.seconds / (layout.tp * layout.pp),
        bound=speed.bound,
    )
