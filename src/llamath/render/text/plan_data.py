"""The JSON of `llamath plan`."""

from __future__ import annotations

from typing import Any

from ...analysis.plan import PlanReport
from ...analysis.plan.serving_plan import ServeReport
from ...model import Model


def plan_json(_model: Model, report: PlanReport, _tokens: int | None = None) -> dict[str, Any]:
    """Return the JSON of the plans for training."""
    return report.to_json()


def serving_json(_model: Model, report: ServeReport) -> dict[str, Any]:
    """Return the JSON of the plans for serving."""
    return report.to_json()
