"""MiniMax-01 and M1: linear attention with fixed decays, softmax attention in some layers,
experts; norms on the residual stream.
"""

from __future__ import annotations

from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, WeightedResidualLayer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.mixers import lightning_attention
from ..core.tree import Block
from .layers_shared import layer_flags, layer_kinds, layers_from
from .mixtral import NAMES as MIXTRAL
from .registry import family
from .rope_shared import read_rope, rotary_dim

QKV = ("attn.query", "attn.key", "attn.value")
NAMES = MIXTRAL.with_changes(
    inside={
        **dict.fromkeys(QKV, "self_attn.qkv_proj"),
        "attn.norm": "self_attn.norm",
        "attn.gate": "self_attn.output_gate",
        "attn.out": "self_attn.out_proj",
    },
    layouts=dict.fromkeys(QKV, "heads"),
)


@family(hf=NAMES)
def minimax(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads = c.heads(d, num_kv_heads=8)
    eps, act = c.get("rms_norm_eps", 1e-5), c.activation("hidden_act")
    E, k = (
        c.dim("E", any_name("num_local_experts"), default=8),
        c.dim("k", "num_experts_per_tok", default=2),
    )
    moe = mixture(d, E, k, swiglu(d, c.dim("F", "intermediate_size"), act))
    c.require("shared_intermediate_size", 0, "no published model has a shared expert")
    c.require("postnorm", True, "in every published model the residual stream is normalized")
    rope = read_rope(c, c.get("rotary_dim", rotary_dim(c, heads.head_dim)), theta=1e6)
    mixers: dict[str, Block] = {
        "full_attention": gqa(
            d, heads, rope=rope, window=AttentionWindow(size=c.positive_int("sliding_window"))
        ),
        "linear_attention": lightning_attention(d, heads.num_heads, heads.head_dim, act, L),
    }
    norm, feed = rms(d, eps), _factors(c, "mlp", "mlp")
    factors = {kind: _factors(c, kind.replace("attention", "attn"), kind) for kind in mixers}

    def layer(kind: str) -> WeightedResidualLayer:
        return WeightedResidualLayer(
            attn_norm=norm,
            attn=mixers[kind],
            mlp_norm=norm,
            mlp=moe,
            factors=(*factors[kind], *feed),
        )

    softmax = layer_flags(c, "attn_type_list", L, lambda i: i % 2 == 0)
    types = layer_kinds(
        c, L, mixers, lambda i: "full_attention" if softmax(i) else "linear_attention"
    )
    layers = layers_from(layer, types, count_dim=L)
    c.ignore("block_size", "layernorm_attention_alpha", "router_jitter_noise", "shared_moe_mode")
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _factors(c: Config, name: str, published: str) -> tuple[float, float]:
    """Read the factors of the residual stream and of a branch; MiniMax's own configurations have
    other names.
    """
    keys = [(f"{name}_{x}_factor", f"layernorm_{published}_{x}") for x in ("alpha", "beta")]
    alpha, beta = (float(c.get(own if own in c else other, 1.0)) for own, other in keys)
    return alpha, beta
