"""Orion: Llama's layers with biased layer norms instead of RMS norms; their epsilon keeps its
name.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, swiglu
from ..core.tree import repeat
from .gguf_record import ROTARY, GGUFMetadata
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF,
    gguf_arch="orion",
    gguf_metadata=GGUFMetadata(keys=f"{ROTARY} rms_norm_eps=layer_norm_eps"),
)
def orion(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm = layer_norm(d, c.get("rms_norm_eps", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
    )
    layers, context = (
        repeat(layer, c.dim("L", "num_hidden_layers")),
        c.positive_int(any_name("max_sequence_length")),
    )
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=context)
