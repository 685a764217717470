"""Muse Glimmer: sandwich norms, weightless ones on embeddings, queries and keys, gated
attention, RoPE only in layers with a window.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..core.attention_facts import AttentionWindow, Heads, ScoreTransform
from ..core.blocks import Attention, Decoder, Layer, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu
from ..core.expr import Expr
from .layers_shared import layers_from, read_layer_types
from .registry import family
from .rope_shared import read_rope

NAMES = HF_SANDWICH.with_changes(inside={"attn.gate": "self_attn.gate_proj"})
SLIDING, FULL = "sliding_attention", "full_attention"


@family("muse_glimmer_text", hf=NAMES)
def muse_glimmer(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    eps, out_eps = c.get("rms_norm_eps", 1e-5), c.get("post_norm_eps", 1e-8)
    norm, out_norm, plain = rms(d, eps, offset=1.0), rms(d, out_eps, offset=1.0), RMSNorm(eps=eps)
    mlp = swiglu(d, F, c.activation("hidden_activation"))

    def layer(kind: str, rotary: bool) -> Layer:
        attention = glimmer_attention(c, d, kind, rotary, num_kv_heads=2, head_dim=128, factor=3.87)
        return Layer(
            attn_norm=norm,
            attn=attention,
            attn_out_norm=out_norm,
            mlp_norm=norm,
            mlp=mlp,
            mlp_out_norm=out_norm,
        )

    types, thetas = read_layer_types(c, L, (SLIDING, FULL)), c["layer_rope_theta"]
    if not isinstance(thetas, list) or len(thetas) != L:
        raise c.error("layer_rope_theta", f"should be a list of {L} layers")
    layers = layers_from(layer, types, map(bool, thetas))
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    factor, cap = (
        c.get("output_multiplier", 0.19611613513818404),
        c.get("final_logit_softcapping", 20.0),
    )
    return decoder(
        V,
        d,
        layers,
        rms(d, eps),
        tied,
        embed_norm=plain,
        context=context,
        logit_scale=factor,
        softcap=cap,
    )


def glimmer_attention(
    c: Config,
    d: Expr,
    kind: str,
    rotary: bool,
    *,
    num_kv_heads: int,
    head_dim: int,
    factor: float,
    theta: float = 1e4,
) -> Attention:
    """Read the attention of a layer; the last arguments are the family's defaults."""
    (H, K, h), bias = (
        c.heads(d, num_kv_heads=num_kv_heads, head_dim=head_dim),
        c.get("attention_bias", False),
    )
    window, positions, plain = (
        c.nullable("sliding_window", 2048),
        read_rope(c, h, theta),
        RMSNorm(eps=c.get("rms_norm_eps", 1e-5)),
    )
    return gqa(
        d,
        Heads(H, K, h),
        bias,
        rope=positions if rotary else None,
        window=AttentionWindow(size=window if kind == SLIDING else None),
        gate=linear(H * h, d),
        q_norm=plain,
        k_norm=plain,
        score_transform=ScoreTransform(scale=c.get("qk_scale_factor", factor) * h**-0.5),
    )
