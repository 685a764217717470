"""Mistral: Llama's layers with a window in the first release, without any bias."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..checkpoint.naming.meta_names import META
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .llama import llama
from .registry import family
from .rope_shared import read_rope

_CLASS_DEFAULTS = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}
"""Defaults of the class in transformers, which configs inside multimodal models leave out."""


@family(
    hf=HF,
    meta=META,
    gguf=GGUF_LLAMA,
    gguf_arch="llama",
    gguf_metadata=llama.gguf_metadata,
    chat="mistral",
    causal_class="MistralForCausalLM",
    class_defaults=_CLASS_DEFAULTS,
)
def mistral(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d, num_kv_heads=8), rms(d, c.get("rms_norm_eps", 1e-6))
    window = c.positive_int("sliding_window") or c.nullable("sliding_window", 4096)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, rope=read_rope(c, heads.head_dim), window=AttentionWindow(size=window)),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
    )
    c.ignore("attention_bias", "mlp_bias")
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
