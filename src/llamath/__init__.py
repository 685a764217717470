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

__version__ = "0.1.0"

__all__ = [
    "Block",
    "ConfigError",
    "ConvertError",
    "Count",
    "Decoder",
    "Dim",
    "FormatError",
    "Leaf",
    "LlamathError",
    "MissingExtra",
    "Model",
    "ModelArgs",
    "Parameters",
    "RemoteError",
    "Stack",
    "UnknownModel",
    "Weight",
    "count",
    "load",
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
