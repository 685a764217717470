"""A design for programs: the contract of `llamath design --json`."""

from __future__ import annotations

from typing import Any

from ...analysis.design.candidate import Candidate
from ...analysis.design.design_ranking import RankedDesign
from ...analysis.design.design_report import DesignReport
from ...analysis.diff.model_diff import DiffReport
from ...analysis.flops.scaling_laws import TrainingBudget


def design_json(found: DesignReport) -> dict[str, Any]:
    """Fields are added, never renamed; `searched` counts the points of the grid, each decided, `rows` the intervals worked out for that."""
    request, missed = found.request, found.misses
    return {
        "target": request.target,
        "like": found.series.name,
        "tolerance": float(request.tolerance),
        "rank": "error" if request.by_error else "habits",
        "searched": found.searched,
        "rows": found.rows,
        "within": found.within,
        "candidates": [_candidate(x) for x in found.candidates],
        "nearest": [_near(x, request.target) for x in missed.nearest] if missed else [],
        "binding": [{"option": x.option, "within": x.within} for x in missed.binding] if missed else [],
        "notes": list(found.notes),
    }


def _candidate(x: Candidate) -> dict[str, Any]:
    multiple, multiplier = x.rounding or (None, None)
    return {
        "config": dict(x.config),
        "parameters": x.total,
        "error_ppm": x.ppm,
        "reasons": list(x.reasons),
        "distance": round(x.cost, 4),
        "active": x.active,
        "aspect": round(x.aspect, 4),
        "ffn_ratio": round(x.ffn / x.width, 4),
        "kv_bytes_per_token": x.kv_bytes,
        "multiple_of": multiple,
        "ffn_dim_multiplier": multiplier,
    }


def _near(one: RankedDesign, target: int) -> dict[str, Any]:
    x = one.outer
    return {
        "parameters": one.total,
        "error_ppm": round((one.total - target) * 10**6 / target, 1),
        "layers": one.layers,
        "width": x.d,
        "ffn": one.ffn,
        "heads": x.H,
        "kv_heads": x.K,
        "head_dim": x.h,
    }


def budget_json(found: TrainingBudget) -> dict[str, Any]:
    """Training compute and the law that was named."""
    return {
        "parameters": found.parameters,
        "tokens": found.tokens,
        "flops": found.flops,
        "tokens_per_parameter": round(found.per_parameter, 4),
        "law": found.law.name,
        "source": found.law.source,
        "trained": found.law.trained,
        "optimal_tokens": round(found.optimal_tokens),
        "optimal_parameters": round(found.optimal_parameters),
        "extrapolated": found.law.extrapolates(found.parameters),
    }


def contrast_json(like: str, config: dict[str, Any], found: DiffReport) -> dict[str, Any]:
    """How a design of another series differs."""
    return {
        "like": like,
        "config": config,
        "parameters": found.total.b,
        "delta": found.delta,
        "causes": [{"cause": x.cause, "delta": x.delta} for x in found.causes],
    }
