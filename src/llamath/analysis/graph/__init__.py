"""What a block does, step by step: a module for each kind, each step with shapes in letters, the weights it uses and its FLOPs."""

from __future__ import annotations

from .graph_builder import GraphBuilder, Operation, UsedWeight

__all__ = ["GraphBuilder", "Operation", "UsedWeight"]
