"""Models that are counted but not computed: encoder-decoder models, whose decoder alone makes no sense of a text."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..core.config import Config
from ..core.multimodal import CountedBlock

COUNTED_MODELS = {"florence2": "florence2"}
"""Model type → the module with a function of the same name, from a whole configuration to its modules, and parts of names to replace."""

CLAIM = "as an encoder-decoder model"
"""How they are counted."""

Builder = Callable[[Config], tuple[CountedBlock, dict[str, str]]]


def find_counted(model_type: str) -> Builder | None:
    """Return the builder of a model type that is counted only; None for another."""
    module = COUNTED_MODELS.get(model_type)
    if module is None:
        return None
    found: Builder = getattr(import_module(f"{__package__}.{module}"), module)
    return found
