"""XGLM: BioGPT's layers with computed positions, the sines and cosines of the original
transformer.
"""

from __future__ import annotations

from ..config_keys import any_name
from ..core.blocks import Decoder, Layer, SinusoidalEmbedding
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.tree import repeat
from .biogpt import NAMES_XGLM
from .registry import family


@family(hf=NAMES_XGLM, causal_class="XGLMForCausalLM")
def xglm(c: Config) -> Decoder:
    d, V, F = (
        c.dim("d", any_name("d_model"), least=4),
        c.dim("V", "vocab_size"),
        c.dim("F", any_name("ffn_dim")),
    )
    if d % 2:
        raise c.error("d_model", f"is {d}; sines and cosines are half of it each")
    heads = c.square_heads(
        d, "attention_heads|num_attention_heads", "attention_heads|num_attention_heads"
    )
    norm, ff = (
        layer_norm(d, 1e-5),
        mlp(d, F, c.activation("activation_function", "gelu"), bias=True),
    )
    layer = Layer(attn_norm=norm, attn=gqa(d, heads, bias=True), mlp_norm=norm, mlp=ff)
    embed = embedding(V, d, d**0.5 if c.get("scale_embedding", True) else 1.0).extended(
        SinusoidalEmbedding, position_offset=2, steps=d // 2 - 1
    )
    layers, context = (
        repeat(layer, c.dim("L", any_name("num_layers"))),
        c.positive_int("max_position_embeddings"),
    )
    return decoder(
        V, d, layers, norm, c.get("tie_word_embeddings", True), embed=embed, context=context
    )
