"""Granite's MoE models with an MLP beside the experts that every token passes through."""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from ..core.tree import repeat
from .granite_shared import (
    NAMES_MOE,
    granite_attention,
    granite_decoder,
    granite_experts,
    granite_layer,
    granite_shared_mlp,
)
from .registry import family
from .rope_shared import read_rope


@family(hf=NAMES_MOE, causal_class="GraniteMoeSharedForCausalLM")
def granitemoeshared(c: Config) -> Decoder:
    d = c.dim("d", "hidden_size")
    attn, moe = (
        granite_attention(c, d, read_rope(c, c.heads(d).head_dim)),
        granite_experts(c, d, granite_shared_mlp(c, d, 0)),
    )
    return granite_decoder(
        c, d, repeat(granite_layer(c, d, attn, moe), c.dim("L", "num_hidden_layers"))
    )
