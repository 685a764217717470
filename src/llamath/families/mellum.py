"""Mellum: Qwen3 MoE's layers, some with a window and a rotary base of their own, some with a
dense MLP.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from .layers_shared import layer_kinds, layers_from, mlp_kinds
from .qwen_shared import experts
from .registry import family
from .rope_shared import rope_of_type

THETAS = {"full_attention": 5e5, "sliding_attention": 1e4}


@family(hf=HF, causal_class="MellumForCausalLM", renames_experts="mellum")
def mellum(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, eps, bias = (
        c.heads(d, num_kv_heads=4, head_dim=128),
        c.get("rms_norm_eps", 1e-6),
        c.get("attention_bias", False),
    )
    norm, head_norm, window = (
        rms(d, eps),
        rms(heads.head_dim, eps),
        c.nullable("sliding_window", 1024),
    )
    dense = swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act"))
    mlps = {"dense": dense, "sparse": experts(c, d, c.get("norm_topk_prob", True))}

    def layer(kind: str, mlp: str) -> Layer:
        span = AttentionWindow(size=window if kind == "sliding_attention" else None)
        rope = rope_of_type(c, kind, heads.head_dim, THETAS[kind])
        return Layer(
            attn_norm=norm,
            attn=gqa(d, heads, bias, rope=rope, window=span, q_norm=head_norm, k_norm=head_norm),
            mlp_norm=norm,
            mlp=mlps[mlp],
        )

    types = layer_kinds(c, L, THETAS, lambda _: "full_attention")
    c.ignore(
        "intermediate_size",
        "num_mtp_layers",
        "num_nextn_predict_layers",
        "mtp_layer_types",
        "mtp_mlp_layer_types",
    )
    layers = layers_from(layer, types, mlp_kinds(c, L, first=0), count_dim=L)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
