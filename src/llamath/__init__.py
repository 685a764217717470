"""llamath: know a Llama down to its last weight, and run it.

>>> import llamath
>>> model = llamath.load("llama-3-8b")
>>> model.parameters.total
8030261248
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .analysis.flops.flops_report import FlopsReport, FlopsRequest, flops
    from .analysis.inference.inference_memory import MemoryReport, MemoryRequest, memory
    from .analysis.memory_line import MemoryLine
    from .analysis.parallel_layout import Layout
    from .analysis.plan import PlanReport, PlanRequest, plan
    from .analysis.training.training_memory import TrainReport, TrainRequest, training
    from .core.blocks import Decoder
    from .core.errors import ConfigError, ConvertError, FormatError, LlamathError, MissingExtra, RemoteError, UnknownModel
    from .core.expr import Dim
    from .core.meta_args import ModelArgs
    from .core.parameter_count import Count, Parameters, count_parameters
    from .core.tree import Block, Leaf, Stack, Weight, walk
    from .loading import load
    from .model import Model

__version__ = "0.1.0"

__all__ = [
    "Block",
    "ConfigError",
    "ConvertError",
    "Count",
    "Decoder",
    "Dim",
    "FlopsReport",
    "FlopsRequest",
    "FormatError",
    "Layout",
    "Leaf",
    "LlamathError",
    "MemoryLine",
    "MemoryReport",
    "MemoryRequest",
    "MissingExtra",
    "Model",
    "ModelArgs",
    "Parameters",
    "PlanReport",
    "PlanRequest",
    "RemoteError",
    "Stack",
    "TrainReport",
    "TrainRequest",
    "UnknownModel",
    "Weight",
    "count_parameters",
    "flops",
    "load",
    "memory",
    "plan",
    "training",
    "walk",
]

_ROOMS = {
    "core.meta_args": "ModelArgs",
    "core.blocks": "Decoder",
    "core.expr": "Dim",
    "core.errors": "ConfigError ConvertError FormatError LlamathError MissingExtra RemoteError UnknownModel",
    "loading": "load",
    "model": "Model",
    "core.tree": "Block Leaf Stack Weight walk",
    "core.parameter_count": "Count Parameters count_parameters",
    "analysis.memory_line": "MemoryLine",
    "analysis.inference.inference_memory": "MemoryReport MemoryRequest memory",
    "analysis.parallel_layout": "Layout",
    "analysis.plan": "PlanReport PlanRequest plan",
    "analysis.training.training_memory": "TrainReport TrainRequest training",
    "analysis.flops.flops_report": "FlopsReport FlopsRequest flops",
}
"""Where each public name lives; it is imported when it is first asked for, because a command needs few of them."""


def __getattr__(name: str) -> object:
    for room, names in _ROOMS.items():
        if name in names.split():
            globals()[name] = value = getattr(import_module(f"{__name__}.{room}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
