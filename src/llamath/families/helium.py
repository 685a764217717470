"""Helium 1: Llama's layers, with rotary positions in neighboring pairs."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family(hf=HF, causal_class="HeliumForCausalLM")
def helium(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.square_heads(d), rms(d, c.get("rms_norm_eps", 1e-8))
    rope = read_rope(c, heads.head_dim, theta=1e5, interleaved=True)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("attention_bias", False), o_bias=False, rope=rope),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
