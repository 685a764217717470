"""DBRX: layer norms without biases, clipped queries, keys and values, and sixteen experts, whose
matrices are stored as one.
"""

from __future__ import annotations

from ..core.attention_facts import ClipQKV, Heads, QKPreprocess
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mixture, swiglu
from ..core.tree import repeat
from .mpt import NAMES as MPT_NAMES
from .registry import family
from .rope_shared import rope_from

NAMES = MPT_NAMES.with_changes(
    inside={
        **{
            x: f"norm_attn_norm.{MPT_NAMES.inside[x]}"
            for x in ("attn_norm", "attn.q", "attn.k", "attn.v", "attn.o", "mlp_norm")
        },
        "mlp.router": "ffn.router.layer",
        **{
            f"mlp.experts.{{e}}.{x}.weight": f"ffn.experts.mlp.{y}"
            for x, y in (("gate", "w1"), ("up", "v1"), ("down", "w2"))
        },
    },
    layouts={
        **{f"mlp.experts.{{e}}.{x}": "below" for x in ("gate", "up")},
        "mlp.experts.{e}.down": "flip below",
    },
)


@family(hf=NAMES, gguf_arch="dbrx", causal_class="DbrxForCausalLM", has_linear_routers=True)
def dbrx(c: Config) -> Decoder:
    d, V, C = c.dim("d", "d_model"), c.dim("V", "vocab_size"), c.dim("C", "max_seq_len")
    a, f = c.sub("attn_config"), c.sub("ffn_config")
    H, _, h = c.heads(d, "n_heads", "n_heads")
    rope = rope_from(c, c.sub("rope_parameters"), theta=a.get("rope_theta", 10000.0), dim=h)
    clip = ClipQKV(limit=limit) if (limit := a.number("clip_qkv")) else None
    attn = gqa(
        d,
        Heads(H, a.dim("K", "kv_n_heads", default=1), h),
        rope=rope,
        qk_preprocess=QKPreprocess(clip=clip),
    )
    E, k, F = (
        f.dim("E", "moe_num_experts", default=4),
        f.dim("k", "moe_top_k", default=1),
        f.dim("F", "ffn_hidden_size", default=3584),
    )
    if f.get("hidden_size", d.plain()) != d:
        raise f.error("hidden_size", f"is {f['hidden_size']}, unlike the width {d} of the model")
    if (power := f.data.get("moe_normalize_expert_weights", 1)) not in (None, 1):
        raise f.error(
            "moe_normalize_expert_weights",
            f"is {power!r:.40}; only 1, for weights that sum to 1, and null are supported",
        )
    f.ignore("moe_normalize_expert_weights", "moe_jitter_eps", "moe_loss_weight")
    c.ignore("num_key_value_heads", "emb_pdrop", "resid_pdrop", "output_router_logits")
    a.ignore("attn_pdrop")
    expert = swiglu(d, F, f.sub("ffn_act_fn").activation("name"))
    norm, moe = (
        layer_norm(d, 1e-5, bias=False),
        mixture(d, E, k, expert, norm_topk_prob=power is not None),
    )
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=moe)
    return decoder(
        V,
        d,
        repeat(layer, c.dim("L", "n_layers")),
        norm,
        c.get("tie_word_embeddings", False),
        context=C,
    )
