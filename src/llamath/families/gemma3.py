"""Gemma 3: Gemma 2 with norms on the heads of q and k in place of the soft caps, five windowed
layers to one without, two rotary bases.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_SHIFTED
from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu
from ..core.positions import Rope
from .gemma_shared import gemma_query_scale
from .gguf_record import LLAMA, GGUFMetadata
from .gguf_shared import QUERY_SCALE_UNSTATED, query_scale
from .layers_shared import alternating
from .registry import family
from .rope_shared import rope_from


@family(
    "gemma3_text gemma3",
    hf=HF_SANDWICH,
    gguf=GGUF_SHIFTED,
    gguf_arch="gemma3",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias rope_local_base_freq final_logit_softcapping "
        "sliding_window? layer_types=sliding_layer_types",
        model_type="gemma3_text",
        read=query_scale(unscaled_layers=62),
        unstated=QUERY_SCALE_UNSTATED,
    ),
    causal_class="Gemma3ForCausalLM",
)
def gemma3(c: Config) -> Decoder:
    d, V, F = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size", default=262_208),
        c.dim("F", "intermediate_size"),
    )
    L, heads, bias = (
        c.dim("L", "num_hidden_layers"),
        c.heads(d, num_heads=8, num_kv_heads=4, head_dim=256),
        c.get("attention_bias", False),
    )
    eps, h = c.get("rms_norm_eps", 1e-6), heads.head_dim
    norm, head_norm = rms(d, eps, offset=1.0), rms(h, eps, offset=1.0)
    mlp = swiglu(d, F, c.activation("hidden_activation", "gelu_pytorch_tanh"))
    scores, ahead = (
        ScoreTransform(scale=gemma_query_scale(c)),
        c.get("use_bidirectional_attention", False),
    )
    c.ignore("hidden_act", "attn_logit_softcapping", "cache_implementation")

    def layer(rope: Rope, window: int | None) -> Layer:
        reach = AttentionWindow(size=window, causal=not ahead)
        attention = gqa(
            d,
            heads,
            bias,
            q_norm=head_norm,
            k_norm=head_norm,
            rope=rope,
            window=reach,
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

    window = c.nullable(any_name("sliding_window"), 4096)
    by_kind = c.sub("rope_parameters")
    far = by_kind.sub("full_attention") if "rope_parameters" in c else c.sub("rope_scaling")
    near = layer(
        rope_from(
            c, by_kind.sub("sliding_attention"), theta=c.get("rope_local_base_freq", 1e4), dim=h
        ),
        window // 2 + 1 if window and ahead else window,
    )
    full = layer(rope_from(c, far, theta=c.get("rope_theta", 1e6), dim=h), None)
    return decoder(
        V,
        d,
        alternating(c, L, near, full, nth=c.get(any_name("sliding_window_pattern"), 6)),
        norm,
        tied=c.get("tie_word_embeddings", True),
        embed=embedding(V, d, scale=d**0.5),
        context=c.get("max_position_embeddings", 131_072),
        softcap=c.number("final_logit_softcapping"),
    )
