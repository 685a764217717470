"""OLMo: Llama's layers with layer norms that have no weights, and clamped queries, keys and values."""

from __future__ import annotations

from ..blocks import Decoder, Layer, LayerNorm
from ..build import decoder, gqa, swiglu
from ..config import Config
from ..heads import Clip, Norming
from ..names.gguf import GGUF_LLAMA
from ..names.hf import HF
from ..tree import repeat
from . import family
from .shared import rope


@family("olmo", hf=HF, gguf=GGUF_LLAMA, arch="olmo")
def olmo(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm, limit = LayerNorm(eps=1e-5), c.get("clip_qkv", 0.0)
    norming = Norming(clip=Clip(limit=limit) if limit else None)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("attention_bias", False), rope=rope(c, heads[2]), norming=norming),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.whole("max_position_embeddings"))
