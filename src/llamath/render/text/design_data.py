"""The JSON of `llamath design`."""

from __future__ import annotations

from typing import Any

from ...analysis.design.design_report import DesignReport
from ...analysis.diff.model_diff import DiffReport
from ...analysis.flops.scaling_laws import TrainingBudget


def design_json(found: DesignReport) -> dict[str, Any]:
    """Return the JSON of a design."""
    return found.to_json()


def budget_json(found: TrainingBudget) -> dict[str, Any]:
    """Return the JSON of the training compute."""
    return found.to_json()


def contrast_json(like: str, config: dict[str, Any], found: DiffReport) -> dict[str, Any]:
    """Return the JSON of the comparison with a design of another series."""
    causes = [{"cause": x.cause, "delta": x.delta} for x in found.causes]
    return {"like": like, "config": config, "parameters": found.total.b, "delta": found.delta, "causes": causes}
