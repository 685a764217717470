"""The computation of a model as a graph, and everything that follows from it: FLOPs, shapes, caches, the trace."""

from __future__ import annotations

from .operations import Operation, WeightUse

__all__ = ["Operation", "WeightUse"]
