"""Granite with sliding windows, attention sinks and a rotary base for each layer."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.constructors import swiglu
from .granite_shared import granite_decoder, windowed_layers
from .registry import family


@family(hf=HF, causal_class="GraniteSWAForCausalLM")
def granite_swa(c: Config) -> Decoder:
    d, F = c.dim("d", "hidden_size"), c.dim("F", "intermediate_size")
    mlp = swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False))
    return granite_decoder(
        c, d, windowed_layers(c, d, mlp, kv_heads=4, eps=1e-5), tied=True, eps=1e-5
    )
