"""`plan`: how to spread a model over a cluster. `space` has the layouts, `time` and `memory` their costs, `ranking` and `serve` answer."""

from __future__ import annotations

from .plan_ranking import PlanReport, PlanRequest, layout_axes, plan, sequences_per_step

__all__ = ["PlanReport", "PlanRequest", "layout_axes", "plan", "sequences_per_step"]
