"""Layouts from `plan` for training and for serving on the default GPU: their GPUs, what each
holds, and the schedule of the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ....analysis.graph.recorder import record
from ....analysis.size.fit.fit_words import split_text
from ....analysis.size.fit.serving_layouts import tp_degrees
from ....analysis.size.memory.cache_bytes import cache_specs
from ....analysis.size.memory.inference_memory import MemoryCalculator
from ....analysis.size.plan.layout_space import divisors
from ....analysis.size.plan.plan_ranking import PlanRequest, plan
from ....analysis.size.plan.serving_plan import plan_serving
from ....analysis.size.plan.step_time import STEP_PARTS
from ....analysis.size.plan.training_run import TrainingPlan
from ....analysis.size.training.training_memory import TrainingJob, TrainRequest
from ....analysis.storage.parallel_layout import PipelineStage, pipeline_stages
from ....core.tree import fold
from ....hardware import Device, find_device
from ....model import FamilyModel
from ....questions.layout import Layout
from ....utils.errors import LlamathError
from .inference_data import DEFAULT_GPU

_FIXED = {"cp": 1, "microbatch": 1, "interleave": 1}
"""The page shows a few plans of this part of the search; `plan` tries all."""
_FIXED_LONG = {"microbatch": 1, "interleave": 1}
_LONG_CONTEXT = 2**17
"""Tokens of the sequences that are trained on with context parallelism, or the model's own
context if that is less."""
_TOP = 3
_NODE = 8
_LARGEST_PIPELINE = 8
"""The most stages of a schedule that is drawn."""
_MOST_MICROBATCHES, _MOST_WITH_TWO_STAGES = 64, 256
_PARTS = ("weights", "gradients", "master", "optimizer", "activations", "logits", "overhead")


def layouts(
    model: FamilyModel, calculator: MemoryCalculator, serving_gpus: int, training_gpus: int
) -> dict[str, Any]:
    """Return the best plans for training on a cluster and for serving; `training_gpus` is the
    smallest cluster on which a step fits.
    """
    gpu, cluster = find_device(DEFAULT_GPU), max(4 * training_gpus, _NODE)
    training = _training(model, (cluster, gpu), PlanRequest(top=_TOP, fixed=_FIXED))
    return {
        "gpu": gpu.name,
        "training": training,
        "long": None
        if training is None
        else _long_training(model, (cluster, gpu), int(training["context"])),
        "serving": _serving(model, calculator, gpu, max(serving_gpus, _NODE)),
    }


def _long_training(
    model: FamilyModel, on: tuple[int, Device], context: int
) -> dict[str, Any] | None:
    """Return the best plans for long sequences; None for models whose context is no longer than
    that of the other plans.
    """
    longest = min(_LONG_CONTEXT, model.tree.context or 0)
    if longest <= context:
        return None
    return _training(model, on, PlanRequest(top=_TOP, fixed=_FIXED_LONG, context=longest))


def _training(
    model: FamilyModel, on: tuple[int, Device], request: PlanRequest
) -> dict[str, Any] | None:
    try:
        report = plan(model, on, request)
    except LlamathError:  # such as an optimizer or a dtype that cannot train this model
        return None
    job = TrainingJob(
        model,
        TrainRequest(
            dtype=report.dtype, gradients=request.gradients, context=report.context, fused=True
        ),
    )
    return {
        "gpus": str(report.gpus),
        "context": str(report.context),
        "sequences": str(report.sequences),
        "dtype": report.dtype,
        "peak": str(report.peak),
        "plans": [_training_plan(model, job, x) for x in report.plans],
        "undivided": next(
            (x.why for x in report.rejected if x.what == f"CP {divisors(report.gpus)[1]:,}"), ""
        ),
    }


def _training_plan(model: FamilyModel, job: TrainingJob, found: TrainingPlan) -> dict[str, Any]:
    layout = found.layout
    report = job.with_layout(layout).report()
    fullest = report.largest_stage
    return {
        "name": layout.axes,
        "axes": {name: str(getattr(layout, name)) for name in ("tp", "pp", "cp", "ep", "dp")},
        "zero": str(layout.zero),
        "microbatches": str(layout.count),
        "recompute": layout.recompute,
        "stages": [
            _stage(x.stage) | {"parts": {name: str(getattr(x, name)) for name in _PARTS}}
            for x in report.stages
        ],
        "experts": None if layout.ep == 1 else _experts_of_ranks(model, layout),
        "fullest": fullest.stage.index,
        "parts": {name: str(getattr(fullest, name)) for name in _PARTS},
        "seconds": {name: getattr(found.timing, name) for name in STEP_PARTS},
        "mfu": found.mfu,
        "rate": found.rate,
        "tokens": found.tokens,
        "memory": str(found.memory),
        "parts_of_sequence": None if layout.cp == 1 else _parts_of_sequence(job, found),
        "schedule": None if layout.pp == 1 else _drawn_schedule(layout),
    }


def _experts_of_ranks(model: FamilyModel, layout: Layout) -> dict[str, Any]:
    """Return the experts of a layer, those on one GPU, and the expert-parallel rank of each GPU
    of a stage of the first replica.
    """
    experts = max(x.num_experts for x in fold(model.tree))
    stride = layout.tp if layout.expert_tp > 1 else 1
    ranks = [i // stride % layout.ep for i in range(layout.cp * layout.tp)]
    return {"all": str(experts), "each": str(experts // layout.ep), "ranks": ranks}


def _parts_of_sequence(job: TrainingJob, found: TrainingPlan) -> dict[str, Any]:
    """Return what context parallelism gives each rank: two parts of a sequence, and the keys and
    values of the other ranks.
    """
    layout, context = found.layout, job.context
    graph, width = record(job.model.tree, new_tokens=context), job.saved.kernels.width
    sizes = []
    for block, _ in job.model.tree.layers.distinct():
        specs = cache_specs(graph, layout.tp, {id(block): 1})
        sizes.append(
            (
                sum(sum(map(int, x.rows)) * x.tokens(context) for x in specs),
                sum(sum(map(int, x.rows)) for x in specs),
            )
        )
    elements, per_token = max(sizes)
    parts = [_causal_pairs(i, context // (2 * layout.cp)) for i in range(2 * layout.cp)]
    return {
        "parts": 2 * layout.cp,
        "tokens": str(context // layout.cp),
        "pairs": [str(parts[i] + parts[-1 - i]) for i in range(layout.cp)],
        "elements": str(per_token),
        "bytes": str(width),
        "gathered": str(layout.microbatch * elements * width),
        "received": str(layout.microbatch * elements * width * (layout.cp - 1) // layout.cp),
        "sent": str(int(found.timing.sent.context)),
    }


def _causal_pairs(part: int, tokens: int) -> int:
    """Return the query-key pairs of one part of a sequence under a causal mask."""
    return part * tokens * tokens + tokens * (tokens + 1) // 2


def _drawn_schedule(layout: Layout) -> dict[str, Any] | None:
    """Return the schedule of the pipeline, or of a shorter one with the same share of bubble, that
    is of (stages − 1) / (microbatches + stages − 1), where it would be too large to read; None
    where no eye sees the bubble.
    """
    stages, microbatches = layout.pp, layout.count
    if stages > _LARGEST_PIPELINE or microbatches > _MOST_MICROBATCHES:
        for stages in range(min(layout.pp, _LARGEST_PIPELINE), 1, -1):
            microbatches = round((stages - 1) * layout.count / (layout.pp - 1))
            if microbatches <= _MOST_MICROBATCHES:
                break
        if microbatches > _MOST_WITH_TWO_STAGES:
            return None
        microbatches = max(microbatches, 1)
    return {
        "stages": stages,
        "microbatches": microbatches,
        "slots": [[int(n) for n in x] for x in schedule(stages, microbatches)],
    }


def _stage(x: PipelineStage) -> dict[str, Any]:
    layers = ", ".join(str(a) if a == b - 1 else f"{a}–{b - 1}" for a, b in x.runs)
    return {"layers": layers, "first": x.first, "last": x.last}


class Slot(NamedTuple):
    """What a stage computes from one time to another, in forward passes of a microbatch; a
    backward pass takes two.
    """

    stage: int
    microbatch: int
    backward: bool
    start: int


def schedule(stages: int, microbatches: int) -> Iterator[Slot]:
    """Yield the passes of 1F1B: each stage starts as many microbatches as stages follow it, then
    alternates.
    """
    orders = [_order(i, stages, microbatches) for i in range(stages)]
    done: dict[tuple[int, int, bool], int] = {}
    free, places = [0] * stages, [0] * stages
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        for i, order in enumerate(orders):
            while places[i] < len(order):
                microbatch, backward = order[places[i]]
                before = (i + 1, microbatch, True) if backward else (i - 1, microbatch, False)
                if 0 <= before[0] < stages and before not in done:
                    break
                start = max(free[i], done.get(before, 0))
                free[i] = done[i, microbatch, backward] = start + (2 if backward else 1)
                places[i] += 1
                yield Slot(i, microbatch, backward, start)


def _order(stage: int, stages: int, microbatches: int) -> list[tuple[int, bool]]:
    """Return the passes of a stage in their order: (microbatch, whether backward)."""
    warmup = min(stages - stage - 1, microbatches)
    order = [(n, False) for n in range(warmup)]
    for n in range(microbatches - warmup):
        order += [(warmup + n, False), (n, True)]
    return order + [(n, True) for n in range(microbatches - warmup, microbatches)]


def _serving_name(layout: Layout, replicas: int) -> str:
    split = split_text(layout)
    return split if replicas == 1 else f"{replicas:,} replicas, each {split}"


def _serving(
    model: FamilyModel, calculator: MemoryCalculator, gpu: Device, gpus: int
) -> dict[str, Any]:
    report = plan_serving(model, calculator, (gpus, gpu))
    return {
        "gpus": str(gpus),
        "context": str(report.context),
        "dtype": report.dtype,
        "degrees": [str(x) for x in tp_degrees(model.tree) if x <= _NODE],
        "plans": [
            {
                "name": _serving_name(x.layout, x.replicas),
                "tp": str(x.layout.tp),
                "pp": str(x.layout.pp),
                "replicas": str(x.replicas),
                "batch": str(x.batch),
                "memory": str(x.memory),
                "seconds": x.seconds,
                "rate": x.decode_ceiling,
                "bound": x.bound,
                "stages": [
                    _stage(y)
                    for y in pipeline_stages(model.tree, Layout(tp=x.layout.tp, pp=x.layout.pp))
                ],
            }
            for x in report.plans[:_TOP]
        ],
    }
