"""The contract of `fit --json`: bytes, tokens and tokens a second; fields are added, never renamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...analysis.inference.fit_report import FitReport
from ...analysis.inference.gpu_ranking import GPURanking, RankedGPU
from ...analysis.inference.speed_limits import SpeedLimit
from ...model import Model
from .gpus_text import gpu_json


def fit_json(model: Model, found: FitReport) -> dict[str, Any]:
    """What `llamath fit MODEL --on … --json` prints."""
    at = found.ceilings
    return {
        "model": model.name,
        "source": model.source,
        "fits": found.fits,
        "gpu": gpu_json(found.gpu),
        "count": found.count,
        "layout": {"tp": found.layout.tp, "pp": found.layout.pp},
        "dtype": found.dtype,
        "kv_dtype": found.kv_dtype,
        "context": found.context,
        "batch": found.batch,
        "per_gpu": list(_gpus(found)),
        "max_context": found.max_context,
        "max_batch": found.max_batch,
        "decode_ceiling": at.decode.tokens_per_second,
        "prefill_ceiling": at.prefill.tokens_per_second if at.prefill else None,
        "ceilings": {
            "decode": _speed(at.decode),
            "prefill": _speed(at.prefill) if at.prefill else None,
            "peak": at.roof.peak,
            "peak_dtype": at.roof.dtype,
            "assumptions": list(at.assumptions),
        },
        "instead": [{"change": x.change, "what": x.what, "total": x.total} for x in found.instead],
        "notes": [*found.notes, *model.notes],
    }


def _gpus(found: FitReport) -> Iterator[dict[str, Any]]:
    for share in found.stages:
        parts = {name: getattr(share, name) for name in ("weights", "kv_cache", "activations", "logits", "overhead", "total")}
        for rank in range(share.gpus):
            place = {
                "gpu": share.stage * share.gpus + rank,
                "stage": share.stage,
                "rank": rank,
                "layers": [[a, b - 1] for a, b in share.runs],
            }
            yield place | parts | {"memory": found.gpu.memory, "fits": share.total <= found.gpu.memory}


def _speed(x: SpeedLimit) -> dict[str, Any]:
    return {
        "tokens_per_second": x.tokens_per_second,
        "seconds": x.seconds,
        "bytes": x.bytes,
        "flops": x.flops,
        "intensity": x.intensity,
        "bound": x.bound,
    }


def cards_json(model: Model, found: GPURanking) -> dict[str, Any]:
    """What `llamath fit MODEL --json` prints."""
    return {
        "model": model.name,
        "source": model.source,
        "context": found.context,
        "batch": found.batch,
        "fits": bool(found.gpus),
        "cards": [_card(x) for x in found.gpus],
        "too_small": [x.name for x in found.too_small],
        "notes": list(model.notes),
    }


def _card(x: RankedGPU) -> dict[str, Any]:
    return {
        "gpu": x.device.name,
        "count": x.count,
        "layout": {"tp": x.layout.tp, "pp": x.layout.pp},
        "memory": x.device.memory,
        "total": x.total,
        "max_context": x.max_context,
        "whole_context": x.whole_context,
        "decode_ceiling": x.decode_ceiling,
    }
