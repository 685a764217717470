"""Llama 1 to 3.3 and what copies them: pre-norm, rotary, grouped queries, SwiGLU."""

from __future__ import annotations

from ..blocks import Decoder, Layer
from ..build import decoder, gqa, rms, swiglu
from ..config import Config
from ..names.gguf import GGUF_LLAMA
from ..names.hf import HF
from ..names.meta import META
from ..passes import Reach
from ..tree import repeat
from . import family
from .shared import rope


@family("llama", hf=HF, meta=META, gguf=GGUF_LLAMA, arch="llama")
def llama(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("attention_bias", False), rope=rope(c, heads[2]), reach=Reach(window=c.whole("sliding_window"))),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.whole("max_position_embeddings"))
