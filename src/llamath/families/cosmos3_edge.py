"""The text model of Cosmos 3 Edge: Llama's attention, squared ReLU without a gate."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mlp, rms
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family("cosmos3_edge_text", hf=HF)
def cosmos3_edge(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d, num_kv_heads=8, head_dim=128), rms(d, c.get("rms_norm_eps", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=c.get("attention_bias", False),
            rope=read_rope(c, heads.head_dim, theta=1e8),
        ),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("hidden_act", "relu2"), bias=c.get("mlp_bias", False)),
    )
    c.ignore("pretraining_tp")
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
