"""Kolibri 1: EXAONE 4's attention, norms before and after each branch, and experts chosen by
biased logits with sigmoid weights.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu, weight
from ..core.positions import Rope
from .layers_shared import alternating
from .qwen_shared import experts
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        "attn_out_norm": "post_attn_norm",
        "mlp_out_norm": "post_ffn_norm",
        "mlp.correction": "moe.router.expert_bias",
    }
)


@family(hf=NAMES, causal_class="Kolibri1ForCausalLM")
def kolibri1(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, eps = c.heads(d, num_kv_heads=4, head_dim=128), c.get("rms_norm_eps", 1e-6)
    norm, head_norm, rope = rms(d, eps), rms(heads.head_dim, eps), read_rope(c, heads.head_dim)
    window, routed = c.get("sliding_window", 513), experts(c, d, c.get("norm_topk_prob", False))
    moe = routed.replace(
        correction=weight(c.dim("E", "num_experts|num_local_experts"), role="bias").replace(
            buffer=True
        ),
        shared=swiglu(
            d, c.dim("Fs", "shared_expert_intermediate_size"), c.activation("hidden_act")
        ),
        scoring="sigmoid",
        choice_by_logits=True,
        fp32_router=True,
    )

    def layer(rope: Rope | None, window: int | None) -> Layer:
        attn = gqa(
            d,
            heads,
            q_norm=head_norm,
            k_norm=head_norm,
            rope=rope,
            window=AttentionWindow(size=window),
        )
        return Layer(
            attn_norm=norm, attn=attn, attn_out_norm=norm, mlp_norm=norm, mlp=moe, mlp_out_norm=norm
        )

    layers = alternating(c, L, layer(rope, window), layer(None, None), nth=5)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
