"""Gemma 2: Gemma with a norm on both sides of each branch, soft caps, and a window in every
other layer.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_SHIFTED
from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu
from .gemma_shared import gemma_query_scale
from .gguf_record import LLAMA, GGUFMetadata
from .gguf_shared import QUERY_SCALE_UNSTATED, query_scale
from .layers_shared import alternating
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF_SANDWICH,
    gguf=GGUF_SHIFTED,
    gguf_arch="gemma2",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias attn_logit_softcapping final_logit_softcapping "
        "sliding_window layer_types=sliding_layer_types",
        read=query_scale(unscaled_layers=46),
        unstated=QUERY_SCALE_UNSTATED,
    ),
    causal_class="Gemma2ForCausalLM",
)
def gemma2(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, bias = c.heads(d, num_kv_heads=4, head_dim=256), c.get("attention_bias", False)
    norm = rms(d, c.get("rms_norm_eps", 1e-6), offset=1.0)
    mlp = swiglu(d, F, c.activation("hidden_activation", "gelu_pytorch_tanh"))
    c.ignore("hidden_act", "cache_implementation", "sliding_window_size")
    positions, scores = (
        read_rope(c, heads.head_dim),
        ScoreTransform(
            scale=gemma_query_scale(c), softcap=c.nullable("attn_logit_softcapping", 50.0)
        ),
    )
    causal = not c.get("use_bidirectional_attention", False)

    def layer(window: int | None) -> Layer:
        attention = gqa(
            d,
            heads,
            bias,
            rope=positions,
            window=AttentionWindow(size=window, causal=causal),
            score_transform=scores,
        )
        return Layer(
            attn_norm=norm,
            attn=attention,
            attn_out_norm=norm,
            mlp_norm=norm,
            mlp=mlp,
            mlp_out_norm=norm,
        )

    return decoder(
        V,
        d,
        alternating(c, L, layer(c.nullable("sliding_window", 4096)), layer(None), nth=2),
        norm,
        tied=c.get("tie_word_embeddings", True),
        embed=embedding(V, d, scale=d**0.5),
        context=c.positive_int("max_position_embeddings"),
        softcap=c.nullable("final_logit_softcapping", 30.0),
    )
