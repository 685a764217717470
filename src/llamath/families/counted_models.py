"""Models that are counted but not computed: what their configuration says, without formulas and a forward pass."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from ..core.config import Config
from ..core.multimodal import CountedBlock

COUNTED_MODELS = {
    "florence2": ("florence2", "as an encoder-decoder model"),
}
"""Model type → the module with a function of the same name, and how the model is counted, in words."""


class CountedModel(NamedTuple):
    """A kind of model that is counted only; `build` returns its modules, and parts of names to replace, from a whole configuration."""

    build: Callable[[Config], tuple[CountedBlock, dict[str, str]]]
    claim: str


def find_counted(model_type: str) -> CountedModel | None:
    """Return how a model type is counted that is not computed; None for another."""
    if model_type not in COUNTED_MODELS:
        return None
    module, claim = COUNTED_MODELS[model_type]
    return CountedModel(getattr(import_module(f"{__package__}.{module}"), module), claim)
