"""BioGPT: GPT-2's layers with a table of positions that begins at its third row, and scaled
embeddings.
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.tree import repeat
from .registry import family

_FAIRSEQ_LAYER = {
    "attn_norm": "self_attn_layer_norm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.out_proj",
    "mlp_norm": "final_layer_norm",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
}
NAMES = Scheme(
    name="hf",
    layer="biogpt.layers.{l}.",
    outside={
        "embed": "biogpt.embed_tokens",
        "positions": "biogpt.embed_positions",
        "norm": "biogpt.layer_norm",
        "head": "output_projection",
    },
    inside=_FAIRSEQ_LAYER,
)
NAMES_XGLM = Scheme(
    name="hf",
    layer="model.layers.{l}.",
    outside={"embed": "model.embed_tokens", "norm": "model.layer_norm", "head": "lm_head"},
    inside=_FAIRSEQ_LAYER,
)


@family(hf=NAMES, causal_class="BioGptForCausalLM")
def biogpt(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    C, heads = (
        c.dim("C", "max_position_embeddings", default=1024),
        c.square_heads(d, "num_attention_heads"),
    )
    norm = layer_norm(d, 1e-5)
    ff = mlp(d, F, c.activation("hidden_act", "gelu"), bias=True)
    layers = repeat(
        Layer(attn_norm=norm, attn=gqa(d, heads, bias=True), mlp_norm=norm, mlp=ff),
        c.dim("L", "num_hidden_layers"),
    )
    c.ignore("layer_norm_eps")  # the norms of its class have the default of torch
    embed = embedding(V, d, d**0.5 if c.get("scale_embedding", True) else 1.0)
    positions = embedding(C + 2, d).replace(offset=2)
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", True),
        embed=embed,
        positions=positions,
        context=C,
    )
