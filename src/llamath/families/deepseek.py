"""DeepSeekMoE: Llama's attention, many narrow experts and shared experts, the first layer dense."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from .deepseek_shared import deepseek_moe, deepseek_routing
from .gguf_record import DEEPSEEK_MOE, LLAMA, GGUFMetadata
from .layers_shared import dense_first
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF_LLAMA,
    gguf_arch="deepseek",
    gguf_metadata=GGUFMetadata(keys=f"{LLAMA} {DEEPSEEK_MOE} attention_bias"),
)
def deepseek(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    attn = gqa(d, heads, bias=c.get("attention_bias", False), rope=read_rope(c, heads.head_dim))
    moe = deepseek_moe(
        c,
        d,
        deepseek_routing(c, "softmax", "greedy"),
        shared=0,
        norm_topk_prob=c.get("norm_topk_prob", False),
    )
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_first(c, dense, dense.replace(mlp=moe), default=0)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
