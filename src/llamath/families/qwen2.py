"""Qwen 1.5, 2 and 2.5, and the text part of Qwen2-VL: Llama with biases on q, k and v, and late layers that may have a window."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.forward_pass import AttentionWindow
from . import family
from .shared import layers_with_late_windows, read_rope


@family("qwen2", hf=HF, gguf=GGUF, gguf_arch="qwen2")
def qwen2(c: Config) -> Decoder:
    return _qwen2(c, theta=1e4, eps=1e-6, kv_heads=32, full=28)


@family("qwen2_vl_text", "qwen2_5_vl_text", hf=HF, gguf=GGUF, gguf_arch="qwen2vl")
def qwen2_vl(c: Config) -> Decoder:
    return _qwen2(c, theta=1e6, eps=1e-5, kv_heads=8, full=80)


def _qwen2(c: Config, theta: float, eps: float, kv_heads: int, full: int) -> Decoder:
    d, V, F, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size"), c.dim("L", "num_hidden_layers")
    heads = c.heads(d, default=(0, kv_heads, 0))
    norm = rms(d, c.get("rms_norm_eps", eps))
    mlp = swiglu(d, F, c.activation("hidden_act"))

    def layer(window: int | None) -> Layer:
        attention = gqa(d, heads, bias=True, o_bias=False, rope=read_rope(c, heads[2], theta), window=AttentionWindow(size=window))
        return Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=mlp)

    layers = layers_with_late_windows(c, L, layer, full)
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))
