"""Models of which every weight is counted, and only some passes computed: FLOPs, memory and
trace, but no generation.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from ..core.blocks import Decoder
from ..core.config import Config
from ..core.multimodal import CountedBlock

COUNTED_MODELS = {
    "florence2": ("florence2", "as an encoder-decoder model"),
}
"""Model type → the module with functions `NAME` and `NAME_tree`, and how the model is counted,
in words."""


class CountedModel(NamedTuple):
    """A kind of model that is counted by its modules.

    `build` returns them, and parts of names to replace, from a whole configuration; `tree` returns
    the tree that computes.
    """

    build: Callable[[Config], tuple[CountedBlock, dict[str, str]]]
    tree: Callable[[Config], Decoder]
    claim: str


def find_counted(model_type: str) -> CountedModel | None:
    """Return how a model type is counted that has no family; None for another."""
    if model_type not in COUNTED_MODELS:
        return None
    name, claim = COUNTED_MODELS[model_type]
    module = import_module(f"{__package__}.{name}")
    return CountedModel(getattr(module, name), getattr(module, f"{name}_tree"), claim)
