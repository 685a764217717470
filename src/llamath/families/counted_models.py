"""Models of which every weight is counted, and only some passes computed: FLOPs, memory and
trace, but no generation.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from ..core.config import Config
from ..core.multimodal import CountedBlock
from .registry import Family

COUNTED_MODELS = {
    "florence2": ("florence2", "as an encoder-decoder model"),
}
"""Model type → the module with a function `NAME_modules` and a family `NAME`, and how the model is
counted, in words."""
ENCODER_NOTE = (
    "the encoder reads a prompt of T tokens once, those of images among them; generated tokens "
    "are the decoder's. A context of T tokens is "
    "T in the encoder and as many in the decoder, whose tokens attend to both"
)
"""What a number of tokens means for a model with an encoder."""


class CountedModel(NamedTuple):
    """A kind of model that is counted by its modules.

    `build` returns them, and parts of names to replace, from a whole configuration; `family` builds
    the tree that computes, whose weights have other names.
    """

    build: Callable[[Config], tuple[CountedBlock, dict[str, str]]]
    family: Family
    claim: str


def find_counted(model_type: str) -> CountedModel | None:
    """Return how a model type is counted that has no family; None for another."""
    if model_type not in COUNTED_MODELS:
        return None
    name, claim = COUNTED_MODELS[model_type]
    module = import_module(f"{__package__}.{name}")
    return CountedModel(getattr(module, f"{name}_modules"), getattr(module, name), claim)
