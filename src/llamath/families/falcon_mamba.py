"""Falcon Mamba: Mamba with RMS norms, without weights, on the time steps, b and c."""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from .mamba import NAMES, NAMES_GGUF, selective_decoder
from .registry import family


@family(hf=NAMES, gguf=NAMES_GGUF, gguf_arch="mamba", causal_class="FalconMambaForCausalLM")
def falcon_mamba(c: Config) -> Decoder:
    c.ignore("use_falcon_mambapy")
    return selective_decoder(c, norm_eps=c.get("mixer_rms_eps", 1e-6))
