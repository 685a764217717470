"""Gemma 4 12B: Gemma 4 without experts and per-layer embeddings."""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from .gemma4 import NAMES, gemma4_decoder
from .registry import family


@family("gemma4_unified_text", hf=NAMES, causal_class="Gemma4UnifiedForCausalLM")
def gemma4_unified(c: Config) -> Decoder:
    return gemma4_decoder(c, None, window=1024)
