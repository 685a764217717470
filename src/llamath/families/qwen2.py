"""Qwen 1.5, 2 and 2.5: Llama with biases on q, k and v, and late layers that may have a window."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from .gguf_record import LLAMA, GGUFMetadata
from .layers_shared import layers_with_late_windows
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF,
    gguf_arch="qwen2",
    gguf_metadata=GGUFMetadata(keys=LLAMA),
    causal_class="Qwen2ForCausalLM",
)
def qwen2(c: Config) -> Decoder:
    return qwen2_decoder(c, theta=1e4, eps=1e-6, kv_heads=32, full=28)


def qwen2_decoder(c: Config, theta: float, eps: float, kv_heads: int, full: int) -> Decoder:
    """Build a Qwen2 model with the defaults of one of its configuration classes."""
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads = c.heads(d, num_kv_heads=kv_heads)
    norm = rms(d, c.get("rms_norm_eps", eps))
    mlp = swiglu(d, F, c.activation("hidden_act"))

    def layer(window: int | None) -> Layer:
        attention = gqa(
            d,
            heads,
            bias=True,
            o_bias=False,
            rope=read_rope(c, heads.head_dim, theta),
            window=AttentionWindow(size=window),
        )
        return Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=mlp)

    layers = layers_with_late_windows(c, L, layer, full)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
