"""Granite's MoE models with sliding windows, attention sinks and a rotary base for each layer."""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from .granite_shared import (
    NAMES_MOE,
    granite_decoder,
    granite_experts,
    granite_shared_mlp,
    windowed_layers,
)
from .registry import family

NAMES = NAMES_MOE.with_changes(
    inside={
        "mlp.router": "block_sparse_moe.router",
        **dict.fromkeys(
            (f"mlp.experts.{{e}}.{x}.weight" for x in ("gate", "up")),
            "block_sparse_moe.experts.gate_up_proj",
        ),
        "mlp.experts.{e}.down.weight": "block_sparse_moe.experts.down_proj",
    }
)


@family(hf=NAMES, causal_class="GraniteMoeSWAForCausalLM")
def granitemoe_swa(c: Config) -> Decoder:
    d = c.dim("d", "hidden_size")
    return granite_decoder(
        c, d, windowed_layers(c, d, granite_experts(c, d, granite_shared_mlp(c, d, 0)))
    )
