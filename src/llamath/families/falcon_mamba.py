"""Falcon Mamba: Mamba with RMS norms, without weights, on the time steps, b and c."""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from .gguf_record import GGUFMetadata
from .mamba import GGUF_KEYS, NAMES, NAMES_GGUF, read_gguf, selective_decoder, write_gguf
from .registry import family


@family(
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="mamba",
    gguf_metadata=GGUFMetadata(
        keys=GGUF_KEYS,
        read=read_gguf,
        write=write_gguf,
        applies=lambda h: h.boolean("ssm.dt_b_c_rms") is True,
        unstated="the epsilon of the norms of time steps, b and c (mixer_rms_eps); using the "
        "family's default",
    ),
    causal_class="FalconMambaForCausalLM",
)
def falcon_mamba(c: Config) -> Decoder:
    c.ignore("use_falcon_mambapy")
    return selective_decoder(c, norm_eps=c.get("mixer_rms_eps", 1e-6))
