"""Llama 1 to 3.3 and derivatives: pre-norm, rotary, grouped queries, SwiGLU."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..checkpoint.naming.meta_names import META
from ..core.attention_facts import AttentionWindow, Heads
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .registry import family
from .rope_shared import read_rope

_CLASS_DEFAULTS = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
"""Defaults of the class in transformers, which configs inside multimodal models leave out."""


@family(
    hf=HF,
    meta=META,
    gguf=GGUF_LLAMA,
    gguf_arch="llama",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias mlp_bias sliding_window=window_without_effect",
        tried_first="mixtral",
    ),
    chat="llama-2",
    causal_class="LlamaForCausalLM",
    class_defaults=_CLASS_DEFAULTS,
)
def llama(c: Config) -> Decoder:
    heads, window = c.heads(c.dim("d", "hidden_size")), c.positive_int("sliding_window")
    return llama_decoder(
        c,
        heads,
        eps=1e-6,
        bias=c.get("attention_bias", False),
        mlp_bias=c.get("mlp_bias", False),
        window=window,
    )


def llama_decoder(
    c: Config,
    heads: Heads,
    *,
    eps: float,
    bias: bool,
    mlp_bias: bool,
    o_bias: bool | None = None,
    window: int | None = None,
) -> Decoder:
    """Build a model of Llama's layers with the heads, biases and default epsilon of its family."""
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", eps))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias,
            o_bias,
            rope=read_rope(c, heads.head_dim),
            window=AttentionWindow(size=window),
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=mlp_bias),
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
