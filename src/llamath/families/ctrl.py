"""CTRL: layer norms, ReLU, biases everywhere, and sines and cosines of the position added to
scaled embeddings.
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer, SinusoidalEmbedding
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp, unembedding
from ..core.tree import repeat
from .registry import family

NAMES = Scheme(
    name="hf",
    layer="transformer.h.{l}.",
    outside={"embed": "transformer.w", "norm": "transformer.layernorm", "head": "lm_head"},
    inside={
        "attn_norm": "layernorm1",
        **{f"attn.{x}": f"multi_head_attention.W{x}" for x in "qkv"},
        "attn.o": "multi_head_attention.dense",
        "mlp_norm": "layernorm2",
        "mlp.up": "ffn.0",
        "mlp.down": "ffn.2",
    },
)


@family(hf=NAMES, causal_class="CTRLLMHeadModel")
def ctrl(c: Config) -> Decoder:
    d, V, F = c.dim("d", any_name("n_embd")), c.dim("V", "vocab_size"), c.dim("F", "dff")
    if d % 2:
        raise c.error("n_embd", f"is {d}; sines and cosines are half of it each")
    heads, norm = c.square_heads(d, any_name("n_head"), any_name("n_head")), layer_norm(d, 1e-6)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=True),
        mlp_norm=norm,
        mlp=mlp(d, F, "relu", bias=True),
    )
    embed = embedding(V, d, d**0.5).extended(SinusoidalEmbedding, position_offset=0, steps=d // 2)
    tied, context = c.get("tie_word_embeddings", True), c.positive_int(any_name("n_positions"))
    return decoder(
        V,
        d,
        repeat(layer, c.dim("L", any_name("n_layer"))),
        layer_norm(d, c.get("layer_norm_epsilon", 1e-6)),
        tied,
        embed=embed,
        head=unembedding(V, d, tied, bias=True),
        context=context,
    )
