"""The contract of `fit --json`: bytes, tokens and tokens a second; fields are added, never renamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...analysis.inference.fit_report import Fit
from ...analysis.inference.gpu_ranking import Card, Cards
from ...analysis.inference.speed_limits import Speed
from ...model import Model
from .gpus_text import gpu_json


def fit_json(model: Model, found: Fit) -> dict[str, Any]:
    """What `llamath fit MODEL --on … --json` prints."""
    at = found.ceilings
    return {
        "model": model.name,
        "source": model.source,
        "fits": found.fits,
        "gpu": gpu_json(found.device),
        "count": found.count,
        "layout": {"tp": found.layout.tp, "pp": found.layout.pp},
        "dtype": found.dtype,
        "kv_dtype": found.kv_dtype,
        "context": found.context,
        "batch": found.batch,
        "per_gpu": list(_gpus(found)),
        "max_context": found.max_context,
        "max_batch": found.max_batch,
        "decode_ceiling": at.decode.rate,
        "prefill_ceiling": at.prefill.rate if at.prefill else None,
        "ceilings": {
            "decode": _speed(at.decode),
            "prefill": _speed(at.prefill) if at.prefill else None,
            "peak": at.roof.peak,
            "peak_dtype": at.roof.dtype,
            "assumptions": list(at.assumptions),
        },
        "instead": [{"change": x.change, "what": x.what, "total": x.most} for x in found.instead],
        "notes": [*found.notes, *model.notes],
    }


def _gpus(found: Fit) -> Iterator[dict[str, Any]]:
    for share in found.shares:
        parts = {name: getattr(share, name) for name in ("weights", "kv_cache", "activations", "logits", "overhead", "total")}
        for rank in range(share.gpus):
            place = {
                "gpu": share.stage * share.gpus + rank,
                "stage": share.stage,
                "rank": rank,
                "layers": [[a, b - 1] for a, b in share.runs],
            }
            yield place | parts | {"memory": found.device.memory, "fits": share.total <= found.device.memory}


def _speed(x: Speed) -> dict[str, Any]:
    return {
        "tokens_per_second": x.rate,
        "seconds": x.seconds,
        "bytes": x.bytes,
        "flops": x.flops,
        "intensity": x.intensity,
        "bound": x.bound,
    }


def cards_json(model: Model, found: Cards) -> dict[str, Any]:
    """What `llamath fit MODEL --json` prints."""
    return {
        "model": model.name,
        "source": model.source,
        "context": found.context,
        "batch": found.batch,
        "fits": bool(found.found),
        "cards": [_card(x) for x in found.found],
        "too_small": [x.name for x in found.short],
        "notes": list(model.notes),
    }


def _card(x: Card) -> dict[str, Any]:
    return {
        "gpu": x.device.name,
        "count": x.count,
        "layout": {"tp": x.layout.tp, "pp": x.layout.pp},
        "memory": x.device.memory,
        "total": x.most,
        "max_context": x.max_context,
        "whole_context": x.whole,
        "decode_ceiling": x.decode,
    }
