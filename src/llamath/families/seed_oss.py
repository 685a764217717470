"""Seed-OSS: Llama's layers with biases on queries, keys and values."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF.with_changes(inside={"mlp_norm": "post_attention_norm"}),
    gguf_arch="seed_oss",
    causal_class="SeedOssForCausalLM",
)
def seed_oss(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d, num_kv_heads=8, head_dim=128), rms(d, c.get("rms_norm_eps", 1e-6))
    bias, o_bias = c.get("attention_bias", True), c.get("attention_out_bias", False)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=bias, o_bias=o_bias, rope=read_rope(c, heads.head_dim)),
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
