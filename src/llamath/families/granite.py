"""Granite 3: Llama's layers with four multipliers: of embeddings, attention scores, branches and logits."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .shared import read_rope


@family(hf=HF, gguf=GGUF_LLAMA, gguf_arch="granite")
def granite(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    bias, scale = c.get("attention_bias", False), c.get("attention_multiplier", 1.0)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=bias, rope=read_rope(c, heads.head_dim), score_transform=ScoreTransform(scale=scale)),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
        residual_multiplier=c.get("residual_multiplier", 1.0),
    )
    if not (divisor := c.get("logits_scaling", 1.0)):
        raise c.error("logits_scaling", "is 0, and logits are divided by it")
    layers, tied = repeat(layer, c.dim("L", "num_hidden_layers")), c.get("tie_word_embeddings", False)
    embed = embedding(V, d, c.get("embedding_multiplier", 1.0))
    return decoder(V, d, layers, norm, tied, embed=embed, logit_scale=1 / divisor, context=c.positive_int("max_position_embeddings"))
