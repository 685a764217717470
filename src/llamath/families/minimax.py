"""MiniMax-01 and M1: linear attention with fixed decays, softmax attention in some layers,
experts; norms on the residual stream.
"""

from __future__ import annotations

from typing import ClassVar

from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, Linear, Norm, apply_optional
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, mixture, rms, swiglu
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.mixers import RecurrentMixer
from ..core.tree import Block, Cut
from .layers_shared import layer_flags, layer_kinds, layers_from
from .mixtral import NAMES as MIXTRAL
from .registry import family
from .rope_shared import read_rope, rotary_dim


class LightningAttention(RecurrentMixer):
    """Linear attention with a fixed decay for each head and layer (arXiv:2501.08313); each head
    keeps S `[head_dim, head_dim]`.

    q, k and v pass the activation; S ← e⁻ˢ S + k ⊗ v; y = Sᵀq. The result is out(sigmoid(gate x) ·
    norm(y)), y normalized across all heads.
    """

    short_name: ClassVar[str] = "lightning attention"
    layout_sizes: ClassVar[dict[str, str]] = {"groups": "heads"}
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("query", "key", "value", "gate"), Cut(0, "heads")),
        "out": Cut(1, "heads"),
    }
    query: Linear
    key: Linear
    value: Linear
    norm: Norm
    gate: Linear
    out: Linear
    heads: int
    head_dim: int
    activation: str
    layers: int  # of the model, for the decays

    def forward(self, m: Machine[X], x: X) -> X:
        q, k, v = (
            m.to_float32(m.act(y, self.activation))
            for y in (self.query(m, x), self.key(m, x), self.value(m, x))
        )
        q, k, v = (m.split_heads(y, self.head_dim) for y in (q, k, v))  # (B, T, H, h)
        y = self.norm(
            m, m.to_model_dtype(m.merge_heads(m.linear_attention(self, q, k, v, self.layers)))
        )
        return self.out(m, m.multiply(y, m.act(self.gate(m, x), "sigmoid")))


def lightning_attention(
    d: int, H: Expr, h: Expr, activation: str, layers: int
) -> LightningAttention:
    """Linear attention with fixed decays, which depend on the number of layers."""
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


class WeightedResidualLayer(Layer):
    """x = attn_norm x; x = mlp_norm(a · x + b · mixer x); x = c · x + e · mlp x, with four fixed
    factors (MiniMax-01).
    """

    # of the stream and of the branch, for the mixer and the MLP
    factors: tuple[float, float, float, float]

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        stream, mixed, second_stream, fed = self.factors
        x = apply_optional(self.attn_norm, m, x)
        x = apply_optional(
            self.mlp_norm, m, m.add(m.scale(x, stream), m.scale(m.dropout(self.attn(m, x)), mixed))
        )
        return m.add(m.scale(x, second_stream), m.scale(m.dropout(self.mlp(m, x)), fed))


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


@family(
    "minimax minimax_m1 minimax_text_01",
    hf=NAMES,
    causal_class="MiniMaxForCausalLM",
    renames_experts="minimax",
)
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
