"""The textbook transformer: learned positions, two-matrix feed-forward, full multi-head
attention, tied head; norms and biases optional.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.tree import repeat
from .registry import family


@family(hf=HF.with_changes(outside={"positions": "model.embed_positions"}))
def classic(c: Config) -> Decoder:
    d, V, C = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("C", "max_position_embeddings"),
    )
    F = c.dim("F", "intermediate_size", default=4 * d)
    heads, bias = c.heads(d, "num_attention_heads"), c.get("bias", True)
    norm = layer_norm(d, c.get("layer_norm_eps", 1e-5), bias) if c.get("norms", True) else None
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("hidden_act", "gelu"), bias),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        positions=embedding(C, d),
        context=C,
    )
