"""Ministral 8B of 2024: Mistral's layers, with a window in those that `layer_types` says."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .layers_shared import layers_by_type
from .llama import llama
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF_LLAMA,
    gguf_arch="llama",
    gguf_metadata=llama.gguf_metadata,
    causal_class="MinistralForCausalLM",
)
def ministral(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, norm = c.heads(d, num_kv_heads=8), rms(d, c.get("rms_norm_eps", 1e-6))
    window, mlp = (
        c.positive_int("sliding_window") or c.nullable("sliding_window", 4096),
        swiglu(d, F, c.activation("hidden_act")),
    )
    full = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=mlp,
    )
    windowed = full.replace(
        attn=gqa(d, heads, rope=read_rope(c, heads.head_dim), window=AttentionWindow(size=window))
    )
    layers = layers_by_type(
        c, L, {"sliding_attention": windowed, "full_attention": full}, repeat(windowed, L)
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
