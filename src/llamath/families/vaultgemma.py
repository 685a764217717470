"""VaultGemma: Gemma 2 without the norms after each branch."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu
from .gemma_shared import gemma_query_scale
from .layers_shared import alternating
from .registry import family
from .rope_shared import read_rope


@family(hf=HF_SANDWICH, causal_class="VaultGemmaForCausalLM")
def vaultgemma(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, bias = c.heads(d, num_kv_heads=4, head_dim=256), c.get("attention_bias", False)
    norm = rms(d, c.get("rms_norm_eps", 1e-6), offset=1.0)
    ff, rope = (
        swiglu(d, F, c.activation("hidden_activation", "gelu_pytorch_tanh")),
        read_rope(c, heads.head_dim),
    )
    scores = ScoreTransform(
        scale=gemma_query_scale(c), softcap=c.nullable("attn_logit_softcapping", 50.0)
    )
    c.ignore("hidden_act", "cache_implementation")

    def layer(window: int | None) -> Layer:
        attn = gqa(
            d, heads, bias, rope=rope, window=AttentionWindow(size=window), score_transform=scores
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=ff)

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
