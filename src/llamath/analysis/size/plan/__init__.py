"""Parallel plans for a cluster: every layout that the model admits, its memory and its predicted
step time, ranked.
"""

from __future__ import annotations

from .plan_ranking import PlanReport, PlanRequest, layout_axes, plan, sequences_per_step

__all__ = ["PlanReport", "PlanRequest", "layout_axes", "plan", "sequences_per_step"]
