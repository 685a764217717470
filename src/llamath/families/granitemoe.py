"""Granite 3's MoE models and PowerMoE: Granite's layers and multipliers with experts stacked in
two tensors.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.tree import repeat
from .gguf_record import GRANITE_SCALES, LLAMA, LOCAL_EXPERTS, GGUFMetadata
from .granite_shared import (
    NAMES_MOE,
    granite_attention,
    granite_decoder,
    granite_experts,
    granite_layer,
)
from .registry import family
from .rope_shared import read_rope


@family(
    hf=NAMES_MOE,
    gguf=GGUF_LLAMA,
    gguf_arch="granitemoe",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias {GRANITE_SCALES} {LOCAL_EXPERTS}",
        write=lambda f: {"logit_scale": 1 / f.tree.logit_scale},
    ),
    causal_class="GraniteMoeForCausalLM",
)
def granitemoe(c: Config) -> Decoder:
    d = c.dim("d", "hidden_size")
    attn = granite_attention(c, d, read_rope(c, c.heads(d).head_dim))
    layer = granite_layer(c, d, attn, granite_experts(c, d))
    return granite_decoder(c, d, repeat(layer, c.dim("L", "num_hidden_layers")))
