"""MiniMax-01 and M1: linear attention with fixed decays, softmax attention in some layers, experts; norms on the residual stream."""

from __future__ import annotations

from functools import cache

from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, Heads
from ..core.blocks import Decoder, MoE, WeightedResidualLayer
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu
from ..core.expr import Expr
from ..core.mixers import LightningAttention
from ..core.tree import Block, repeat, sequence
from .mixtral import NAMES as MIXTRAL
from .registry import family
from .shared import layer_kinds, read_rope, rotary_dim

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
    E, k = c.dim("E", any_name("num_local_experts"), default=8), c.dim("k", "num_experts_per_tok", default=2)
    expert = swiglu(d, c.dim("F", "intermediate_size"), act)
    moe = MoE(router=linear(E, d), experts=repeat(expert, E, active=k), top_k=k)
    if c.get("shared_intermediate_size", 0):
        raise c.error("shared_intermediate_size", "should be 0: no published model has a shared expert")
    if not c.get("postnorm", True):
        raise c.error("postnorm", "is false; in every published model the residual stream is normalized")
    rope = read_rope(c, c.get("rotary_dim", rotary_dim(c, heads.head_dim)), theta=1e6)
    mixers: dict[str, Block] = {
        "full_attention": gqa(d, heads, rope=rope, window=AttentionWindow(size=c.positive_int("sliding_window"))),
        "linear_attention": _lightning(d, heads, act, L),
    }
    norm, feed = rms(d, eps), _factors(c, "mlp", "mlp")
    factors = {
        "full_attention": _factors(c, "full_attn", "full_attention"),
        "linear_attention": _factors(c, "linear_attn", "linear_attention"),
    }

    @cache
    def layer(kind: str) -> WeightedResidualLayer:
        return WeightedResidualLayer(attn_norm=norm, attn=mixers[kind], mlp_norm=norm, mlp=moe, factors=(*factors[kind], *feed))

    layers = sequence((layer(x) for x in _kinds(c, L, list(mixers))), count_dim=L)
    c.ignore("block_size", "layernorm_attention_alpha", "router_jitter_noise", "shared_moe_mode")
    return decoder(V, d, layers, norm, c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))


def _lightning(d: Expr, heads: Heads, activation: str, layers: int) -> LightningAttention:
    H, _, h = heads
    into = linear(H * h, d)
    return LightningAttention(
        query=into,
        key=into,
        value=into,
        norm=rms(H * h, 1e-6),
        gate=into,
        out=linear(d, H * h),
        heads=H,
        head_dim=h,
        activation=activation,
        layers=layers,
    )


def _factors(c: Config, name: str, published: str) -> tuple[float, float]:
    """Read the factors of the residual stream and of a branch; MiniMax's own configurations have other names."""
    keys = [(f"{name}_{x}_factor", f"layernorm_{published}_{x}") for x in ("alpha", "beta")]
    alpha, beta = (float(c.get(own if own in c else other, 1.0)) for own, other in keys)
    return alpha, beta


def _kinds(c: Config, n: int, kinds: list[str]) -> list[str]:
    """Read the kind of each layer: a list of words, MiniMax's list of zeros for linear attention and ones, or every second."""
    if "attn_type_list" in c and "layer_types" not in c:
        numbers: list[int] = c["attn_type_list"]
        if len(numbers) != n or any(x not in (0, 1) for x in numbers):
            raise c.error("attn_type_list", f"should be a list of {n} numbers, 0 for linear attention or 1 for softmax attention")
        return ["full_attention" if x else "linear_attention" for x in numbers]
    return layer_kinds(c, n, kinds, lambda i: "linear_attention" if i % 2 else "full_attention")
