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
    from .args import ModelArgs
    from .blocks import Decoder
    from .dims import Dim
    from .errors import ConfigError, ConvertError, FormatError, LlamathError, MissingExtra, RemoteError, UnknownModel
    from .loading import load
    from .model import Model
    from .tree import Block, Leaf, Stack, Weight, walk
    from .views.count import Count, Parameters, count
    from .views.lines import Line
    from .views.memory import MemoryReport, MemoryRequest, memory
    from .views.parallel import Layout
    from .views.plan import PlanReport, PlanRequest, plan
    from .views.training import TrainReport, TrainRequest, training
    from .views.workload import FlopsReport, FlopsRequest, flops

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
    "Line",
    "LlamathError",
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
    "count",
    "flops",
    "load",
    "memory",
    "plan",
    "training",
    "walk",
]

_ROOMS = {
    "args": "ModelArgs",
    "blocks": "Decoder",
    "dims": "Dim",
    "errors": "ConfigError ConvertError FormatError LlamathError MissingExtra RemoteError UnknownModel",
    "loading": "load",
    "model": "Model",
    "tree": "Block Leaf Stack Weight walk",
    "views.count": "Count Parameters count",
    "views.lines": "Line",
    "views.memory": "MemoryReport MemoryRequest memory",
    "views.parallel": "Layout",
    "views.plan": "PlanReport PlanRequest plan",
    "views.training": "TrainReport TrainRequest training",
    "views.workload": "FlopsReport FlopsRequest flops",
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
