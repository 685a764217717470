"""What `llamath plan --json` prints."""

from __future__ import annotations

from typing import Any

from ...analysis.plan import PlanReport, layout_axes
from ...analysis.plan.layout_space import Rejected
from ...analysis.plan.serving_plan import ServeReport
from ...analysis.plan.training_run import TrainingPlan, prediction_constants
from ...model import Model

TIMES = ("arithmetic", "tensor", "context", "expert", "pipeline", "bubble", "data", "update", "step")
"""Seconds of a step."""


def plan_json(model: Model, report: PlanReport, seen: int | None = None) -> dict[str, Any]:
    """Plans of a training step: bytes, seconds, shares."""
    request = report.request
    return {
        "model": model.name,
        "family": model.family.name,
        "source": model.source,
        "device": report.device.name,
        "gpus": report.gpus,
        "memory": report.device.memory,
        "peak": report.peak,
        "dtype": report.dtype,
        "optimizer": request.optimizer,
        "gradients": request.gradients,
        "context": report.context,
        "sequences": report.sequences,
        "batch_tokens": report.batch_tokens,
        "constants": prediction_constants(),
        "layouts": report.layouts,
        "variants": report.variants,
        "plans": [_plan(x, report, seen) for x in report.plans],
        "rejected": _rejected(report.rejected),
        "least": report.least,
        "notes": list(model.notes),
    }


def _plan(x: TrainingPlan, report: PlanReport, seen: int | None) -> dict[str, Any]:
    layout, timing = x.layout, x.timing
    made: dict[str, Any] = layout_axes(layout) | {name: getattr(layout, name) for name in ("zero", "interleave", "microbatch", "recompute")}
    made |= {"microbatches": layout.count, "memory": x.memory, "mfu": x.mfu, "flops": x.rate, "tokens_per_second": x.tokens}
    made |= {"bubble": timing.bubble / timing.step, "seconds": {name: getattr(timing, name) for name in TIMES}}
    made |= {"sent": timing.sent._asdict()}
    if seen is not None:
        hours = seen / x.tokens / 3600
        made |= {"tokens": seen, "steps": -(-seen // report.batch_tokens), "hours": hours, "gpu_hours": hours * report.gpus}
    return made


def serving_json(model: Model, report: ServeReport) -> dict[str, Any]:
    """Plans of a model that serves."""
    return {
        "model": model.name,
        "family": model.family.name,
        "source": model.source,
        "device": report.device.name,
        "gpus": report.gpus,
        "memory": report.device.memory,
        "dtype": report.dtype,
        "kv_dtype": report.kv_dtype,
        "context": report.context,
        "latency": report.latency,
        "plans": [
            {
                "tp": x.layout.tp,
                "pp": x.layout.pp,
                "replicas": x.replicas,
                "batch": x.batch,
                "memory": x.memory,
                "seconds_per_token": x.seconds,
                "decode_ceiling_per_gpu": x.rate,
                "decode_ceiling": x.rate * report.gpus,
                "bound": x.bound,
            }
            for x in report.plans
        ],
        "rejected": _rejected(report.rejected),
        "too_large": _rejected(report.too_large),
        "notes": [*report.notes, *model.notes],
    }


def _rejected(found: tuple[Rejected, ...]) -> list[dict[str, str]]:
    return [{"what": x.what, "why": x.why} for x in found]
