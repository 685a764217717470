"""llamath: know a Llama down to its last weight, and run it.

>>> import llamath
>>> model = llamath.load("llama-3-8b")
>>> model.parameters.total
8030261248
"""

from .args import ModelArgs
from .blocks import Decoder
from .dims import Dim
from .errors import ConfigError, FormatError, LlamathError, MissingExtra, UnknownModel
from .load import load
from .model import Model
from .tree import Block, Leaf, Stack, Weight, walk
from .views.count import Count, Parameters, count

__version__ = "0.1.0"

__all__ = [
    "Block",
    "ConfigError",
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
    "Stack",
    "UnknownModel",
    "Weight",
    "count",
    "load",
    "walk",
]
