"""GGUF metadata as a Hugging Face configuration.

Only keys whose meaning is known are read; of the others those that could matter are reported, and an architecture that no family here
has is refused by name: its tensors can still be counted from the header.
"""

from __future__ import annotations

from .config_lookup import ROTARY_TENSORS, is_auxiliary_tensor
from .gguf_header import INSTEAD
from .gguf_to_config import ARCHITECTURES, from_gguf

__all__ = ["ARCHITECTURES", "INSTEAD", "ROTARY_TENSORS", "from_gguf", "is_auxiliary_tensor"]
