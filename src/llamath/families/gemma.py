"""Gemma 1: scaled embeddings, norms that store w − 1, heads of their own size, GELU in the gate,
a tied head.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_SHIFTED
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF_SHIFTED,
    gguf_arch="gemma",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias use_bidirectional_attention=bidirectional"
    ),
    causal_class="GemmaForCausalLM",
)
def gemma(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, window = (
        c.heads(d, num_kv_heads=16, head_dim=256),
        AttentionWindow(causal=not c.get("use_bidirectional_attention", False)),
    )
    norm = rms(d, c.get("rms_norm_eps", 1e-6), offset=1.0)
    activation = c.activation("hidden_act", "gelu_pytorch_tanh")
    # "gelu" in the first configs is the tanh approximation
    activation = "gelu_pytorch_tanh" if activation == "gelu" else activation
    c.ignore("hidden_activation")
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            c.get("attention_bias", False),
            rope=read_rope(c, heads.head_dim),
            window=window,
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, activation),
    )
    context, tied = c.positive_int("max_position_embeddings"), c.get("tie_word_embeddings", True)
    return decoder(
        V, d, repeat(layer, L), norm, tied, embed=embedding(V, d, scale=d**0.5), context=context
    )
