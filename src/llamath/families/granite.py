"""Granite 3: Llama's layers with four multipliers: of embeddings, attention scores, branches and
logits.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.constructors import swiglu
from ..core.tree import repeat
from .gguf_record import GRANITE_SCALES, LLAMA, GGUFMetadata
from .granite_shared import granite_attention, granite_decoder, granite_layer
from .registry import family
from .rope_shared import read_rope


@family(
    "granite granite_docling_text",
    hf=HF,
    gguf=GGUF_LLAMA,
    gguf_arch="granite",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias mlp_bias {GRANITE_SCALES}",
        write=lambda f: {"logit_scale": 1 / f.tree.logit_scale},
    ),
    causal_class="GraniteForCausalLM",
)
def granite(c: Config) -> Decoder:
    d, F = c.dim("d", "hidden_size"), c.dim("F", "intermediate_size")
    attn = granite_attention(c, d, read_rope(c, c.heads(d).head_dim))
    layer = granite_layer(
        c, d, attn, swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False))
    )
    return granite_decoder(c, d, repeat(layer, c.dim("L", "num_hidden_layers")))
