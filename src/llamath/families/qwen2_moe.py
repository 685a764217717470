"""Qwen1.5-MoE and Qwen2 MoE: biases on q, k and v, many narrow experts and a gated shared
expert.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import Block, Stack, repeat
from .gguf_record import LLAMA, QWEN_SHARED_MOE, GGUFMetadata
from .layers_shared import layers_by_type
from .qwen_shared import NAMES_SHARED, experts_with_shared, sparse_every
from .registry import family
from .rope_shared import read_rope


@family(
    hf=NAMES_SHARED,
    gguf=GGUF,
    gguf_arch="qwen2moe",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} {QWEN_SHARED_MOE} qkv_bias=attention_bias mlp_only_layers=dense_layers"
    ),
    causal_class="Qwen2MoeForCausalLM",
)
def qwen2_moe(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads = c.heads(d, num_kv_heads=16)
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    full = gqa(d, heads, c.get("qkv_bias", True), o_bias=False, rope=read_rope(c, heads.head_dim))
    windowed, order, first = (
        full,
        repeat(full, L),
        max(0, min(int(L), c.get("max_window_layers", 28))),
    )
    if c.get("use_sliding_window", False):
        windowed = full.replace(window=AttentionWindow(size=c.nullable("sliding_window", 4096)))
        order = Stack(
            ((windowed, full), first // 2), ((windowed,), first % 2), ((full,), int(L) - first)
        )

    def layer(attn: Block, sparse: bool) -> Layer:
        moe = experts_with_shared(c, d, c.get("norm_topk_prob", False))
        mlp = (
            moe
            if sparse
            else swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act"))
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)

    layers = sparse_every(
        c,
        layers_by_type(c, L, {"full_attention": full, "sliding_attention": windowed}, order),
        layer,
    )
    c.ignore("intermediate_size", "sliding_window")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
