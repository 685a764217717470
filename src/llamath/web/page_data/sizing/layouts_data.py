"""Layouts from `plan` for training and for serving on the default GPU: their GPUs, what each holds, and the schedule of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ....analysis.fit.serving_layouts import tp_degrees
from ....analysis.inference.inference_memory import MemoryCalculator
from ....analysis.parallel_layout import Layout, PipelineStage, pipeline_stages
from ....analysis.plan.plan_ranking import PlanRequest, plan
from ....analysis.plan.serving_plan import plan_serving
from ....analysis.plan.training_run import TrainingPlan
from ....analysis.training.training_memory import TrainingJob, TrainRequest
from ....hardware import Device, find_device
from ....model import Model
from ....utils.errors import LlamathError
from .inference_data import DEFAULT_GPU

_FIXED = {"cp": 1, "microbatch": 1, "interleave": 1}
"""The page shows a few plans of this part of the search; `plan` tries all."""
_TOP = 3
_NODE = 8
_LARGEST_PIPELINE = 8
"""The most stages of a schedule that is drawn."""
_PARTS = ("weights", "gradients", "master", "optimizer", "activations", "logits", "overhead")
_TIMES = ("arithmetic", "tensor", "expert", "pipeline", "bubble", "data", "update")


def layouts(model: Model, calculator: MemoryCalculator, serving_gpus: int, training_gpus: int) -> dict[str, Any]:
    """Return the best plans for training on a cluster and for serving; `training_gpus` is the smallest cluster on which a step fits."""
    gpu = find_device(DEFAULT_GPU)
    return {
        "gpu": gpu.name,
        "training": _training(model, gpu, max(4 * training_gpus, _NODE)),
        "serving": _serving(model, calculator, gpu, max(serving_gpus, _NODE)),
    }


def _training(model: Model, gpu: Device, gpus: int) -> dict[str, Any] | None:
    request = PlanRequest(top=_TOP, fixed=_FIXED)
    try:
        report = plan(model, (gpus, gpu), request)
    except LlamathError:  # such as an optimizer or a dtype that cannot train this model
        return None
    job = TrainingJob(model, TrainRequest(dtype=report.dtype, gradients=request.gradients, context=report.context, fused=True))
    return {
        "gpus": str(gpus),
        "context": str(report.context),
        "sequences": str(report.sequences),
        "dtype": report.dtype,
        "peak": str(report.peak),
        "plans": [_training_plan(model, job, x) for x in report.plans],
    }


def _training_plan(model: Model, job: TrainingJob, found: TrainingPlan) -> dict[str, Any]:
    layout = found.layout
    stages = pipeline_stages(model.tree, layout)
    fullest = job.with_layout(layout).report(every=False).largest_stage
    return {
        "axes": {name: str(getattr(layout, name)) for name in ("tp", "pp", "ep", "dp")},
        "zero": str(layout.zero),
        "microbatches": str(layout.count),
        "recompute": layout.recompute,
        "stages": [_stage(x) for x in stages],
        "fullest": fullest.stage.index,
        "parts": {name: str(getattr(fullest, name)) for name in _PARTS},
        "seconds": {name: getattr(found.timing, name) for name in _TIMES},
        "mfu": found.mfu,
        "rate": found.rate,
        "tokens": found.tokens,
        "memory": str(found.memory),
        "schedule": None if layout.pp == 1 else _drawn_schedule(layout),
    }


def _drawn_schedule(layout: Layout) -> dict[str, Any]:
    """Return the schedule of the pipeline, or of a shorter one where it would be too large to read."""
    stages = min(layout.pp, _LARGEST_PIPELINE)
    microbatches = min(layout.count, 2 * stages)
    return {"stages": stages, "microbatches": microbatches, "slots": [[int(n) for n in x] for x in schedule(stages, microbatches)]}


def _stage(x: PipelineStage) -> dict[str, Any]:
    layers = ", ".join(str(a) if a == b - 1 else f"{a}–{b - 1}" for a, b in x.runs)
    return {"layers": layers, "first": x.first, "last": x.last}


class Slot(NamedTuple):
    """What a stage computes from one time to another, in forward passes of a microbatch; a backward pass takes two."""

    stage: int
    microbatch: int
    backward: bool
    start: int


def schedule(stages: int, microbatches: int) -> Iterator[Slot]:
    """Yield the passes of 1F1B: each stage starts as many microbatches as stages follow it, then alternates."""
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


def _serving(model: Model, calculator: MemoryCalculator, gpu: Device, gpus: int) -> dict[str, Any]:
    report = plan_serving(model, calculator, (gpus, gpu))
    return {
        "gpus": str(gpus),
        "context": str(report.context),
        "dtype": report.dtype,
        "degrees": [str(x) for x in tp_degrees(model.tree) if x <= _NODE],
        "plans": [
            {
                "tp": str(x.layout.tp),
                "pp": str(x.layout.pp),
                "replicas": str(x.replicas),
                "batch": str(x.batch),
                "memory": str(x.memory),
                "seconds": x.seconds,
                "rate": x.decode_ceiling,
                "bound": x.bound,
                "stages": [_stage(y) for y in pipeline_stages(model.tree, Layout(tp=x.layout.tp, pp=x.layout.pp))],
            }
            for x in report.plans[:_TOP]
        ],
    }
