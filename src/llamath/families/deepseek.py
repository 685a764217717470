"""DeepSeekMoE: Llama's attention, a mixture of many narrow experts with some that every token passes, the first layer dense."""

from __future__ import annotations

from ..blocks import Decoder, Layer
from ..build import decoder, gqa, rms, swiglu
from ..config import Config
from ..names.gguf import GGUF_LLAMA
from ..names.hf import HF
from . import family
from .shared import dense_first, mixture, rope, routing


@family("deepseek", hf=HF, gguf=GGUF_LLAMA, arch="deepseek")
def deepseek(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    attn = gqa(d, heads, bias=c.get("attention_bias", False), rope=rope(c, heads[2]))
    moe = mixture(c, d, shared=0, normalise=c.get("norm_topk_prob", False), **routing(c, "softmax", "greedy"))
    dense = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act")))
    layers = dense_first(c, dense, dense.replace(mlp=moe), default=0)
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.whole("max_position_embeddings"))
