"""Flint: Qwen3 MoE with sinks, positions only in windowed layers, sigmoid scores and a shared
expert without a gate.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu, weight
from ..core.positions import Rope
from ..core.tree import Block, sequence
from .layers_shared import layer_kinds
from .qwen_shared import SHARED, experts, sparse_every
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(inside=SHARED | {"attn.sinks": "self_attn.softmax_offset"})


@family(hf=NAMES, causal_class="FlintForCausalLM")
def flint(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, eps, bias = (
        c.heads(d, num_kv_heads=4, head_dim=128),
        c.get("rms_norm_eps", 1e-6),
        c.get("attention_bias", False),
    )
    norm, head_norm, activation = rms(d, eps), rms(heads.head_dim, eps), c.activation("hidden_act")
    shared = swiglu(d, c.dim("Fs", "shared_expert_intermediate_size"), activation)
    moe = experts(c, d, c.get("norm_topk_prob", True)).replace(
        shared=shared, scoring="sigmoid", fp32_router=True
    )

    def attention(rope: Rope | None, window: int | None) -> Block:
        sinks, span = weight(heads.num_heads, role="bias"), AttentionWindow(size=window)
        return gqa(
            d, heads, bias, rope=rope, window=span, q_norm=head_norm, k_norm=head_norm, sinks=sinks
        )

    def layer(attn: Block, sparse: bool) -> Layer:
        mlp = moe if sparse else swiglu(d, c.dim("F", "intermediate_size"), activation)
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)

    near, far = (
        attention(read_rope(c, heads.head_dim), c.get("sliding_window", 513)),
        attention(None, None),
    )
    kinds = {"full_attention": far, "sliding_attention": near}
    types = layer_kinds(
        c,
        L,
        kinds,
        lambda i: "full_attention" if i < 2 or i % 4 == 1 or i == L - 1 else "sliding_attention",
    )
    layers = sparse_every(c, sequence((kinds[x] for x in types), count_dim=L), layer, dense=(0, 1))
    c.ignore("intermediate_size")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
