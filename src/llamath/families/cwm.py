"""Code World Model: Llama 3's layers, of which three in four have a window."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import cycle
from .layers_shared import layers_by_type
from .registry import family
from .rope_shared import rope_from

ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e6,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@family(hf=HF, causal_class="CwmForCausalLM")
def cwm(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d, num_kv_heads=8, head_dim=128), rms(d, c.get("rms_norm_eps", 1e-5))
    ff = swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False))
    rope = rope_from(
        c,
        c.rope() if "rope_parameters|rope_scaling" in c else Config(ROPE),
        theta=c.get("rope_theta", 1e6),
        dim=heads.head_dim,
    )

    def layer(window: int | None) -> Layer:
        return Layer(
            attn_norm=norm,
            attn=gqa(d, heads, rope=rope, window=AttentionWindow(size=window)),
            mlp_norm=norm,
            mlp=ff,
        )

    L, windowed, full = (
        c.dim("L", "num_hidden_layers"),
        layer(c.nullable("sliding_window", 8192)),
        layer(None),
    )
    layers = layers_by_type(
        c,
        L,
        {"sliding_attention": windowed, "full_attention": full},
        cycle((full, *(windowed,) * 3), L),
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
