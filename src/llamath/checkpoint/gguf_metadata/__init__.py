"""GGUF metadata, read as a Hugging Face configuration.

Only keys whose meaning is known are read; those of the others that could matter are reported, and
an architecture that no family here has is refused by name: its tensors can still be counted from
the header.
"""

from __future__ import annotations

from .gguf_header import count_hint
from .gguf_keys import MetadataValue
from .gguf_rope import ROPE_FREQS, ROTARY_TENSORS
from .loaded_tensors import (
    LOADED_TENSORS,
    is_auxiliary_tensor,
    loader_version,
    loading_problems,
    loads_mtp_layers,
)

__all__ = [
    "LOADED_TENSORS",
    "ROPE_FREQS",
    "ROTARY_TENSORS",
    "MetadataValue",
    "count_hint",
    "is_auxiliary_tensor",
    "loader_version",
    "loading_problems",
    "loads_mtp_layers",
]
