"""The text model of Qwen2.5-Omni's thinker: Qwen2 with other defaults."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from .qwen2 import qwen2_decoder
from .registry import family


@family("qwen2_5_omni_text", hf=HF)
def qwen2_5_omni(c: Config) -> Decoder:
    return qwen2_decoder(c, theta=1e6, eps=1e-6, kv_heads=4, full=28)
