"""The computation of a block, step by step, with shapes, weights and FLOPs."""

from __future__ import annotations

from .graph_builder import GraphBuilder, Operation, UsedWeight

__all__ = ["GraphBuilder", "Operation", "UsedWeight"]
