"""What a GGUF header says, in Hugging Face's keys, and which configuration lies beside a checkpoint.

Only keys whose meaning is known are read; of the others those that could matter are reported, and an architecture that no family here
has is refused by name: its tensors can still be counted from the header.
"""

from __future__ import annotations

from .config_lookup import Beside, aside, beside, config_beside, gguf
from .gguf_header import INSTEAD
from .gguf_to_config import ARCHITECTURES, from_gguf

__all__ = ["ARCHITECTURES", "INSTEAD", "Beside", "aside", "beside", "config_beside", "from_gguf", "gguf"]
