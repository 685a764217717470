"""Inkling's text model: a short convolution in every branch, learned biases by distance, experts
routed with the shared ones.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, Heads, ScoreTransform
from ..core.blocks import (
    MLP,
    Attention,
    Decoder,
    Layer,
    Linear,
    MoE,
    apply_optional,
    norm_heads_of,
    project_heads,
    router_logits,
)
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.mixers import RecurrentMixer
from ..core.positions import LogTuning
from ..core.tree import Cut, Stack, Weight, repeat
from .layers_shared import layer_kinds, layer_numbers, layers_from, mlp_kinds
from .registry import family


class ResidualConvolution(RecurrentMixer):
    """x + a causal depthwise convolution of x, in float32."""

    short_name: ClassVar[str] = "short conv"
    weight: Weight  # [channels, c]

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.to_float32(x)
        return m.to_model_dtype(m.add(m.causal_conv(self, x, self.weight, None), x))


class ConvolvedAttention(Attention):
    """Attention without rotary positions: keys and values pass a short convolution, and scores have
    a learned bias by distance.

    The bias of a query is its `relative` projection times one profile over the distances for each
    of its numbers (Inkling).
    """

    has_relative_positions: ClassVar[bool] = True
    cuts: ClassVar[dict[str, Cut]] = {
        **Attention.cuts,
        **dict.fromkeys(("k_conv", "v_conv"), Cut(0, "kv_heads", "copy")),
        "relative": Cut(0, "heads"),
    }
    k_conv: ResidualConvolution
    v_conv: ResidualConvolution
    relative: Linear
    distance: Linear
    relative_dim: int

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.k is not None and self.v is not None
        q = norm_heads_of(self, m, self.q_norm, project_heads(self, m, self.q, x))  # (B, T, H, h)
        k = norm_heads_of(
            self, m, self.k_norm, m.split_heads(self.k_conv(m, self.k(m, x)), self.head_dim)
        )
        v = m.split_heads(self.v_conv(m, self.v(m, x)), self.head_dim)
        k, v = m.update_cache(self, k, v)  # (B, S, K, h)
        # (B, T, H, D)
        bias = self.distance(m, m.split_heads(self.relative(m, x), self.relative_dim))
        temperature = self.score_transform.temperature
        q, bias = m.scale_by_position(q, temperature), m.scale_by_position(bias, temperature)
        return self.o(m, m.merge_heads(m.attention(self, q, k, v, self.head_dim, None, None, bias)))


class ConvolvedLayer(Layer):
    """A layer whose branches pass a short convolution before they are added (Inkling)."""

    attn_conv: ResidualConvolution
    mlp_conv: ResidualConvolution

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = m.add(x, self.attn_conv(m, self.attn(m, apply_optional(self.attn_norm, m, x))))
        return m.add(x, self.mlp_conv(m, self.mlp(m, apply_optional(self.mlp_norm, m, x))))


class WeightedMLP(MLP):
    """An MLP whose output is multiplied by one stored number (Inkling)."""

    scale: Weight

    def forward(self, m: Machine[X], x: X) -> X:
        return m.scale_by_weight(MLP.forward(self, m, x), self.scale)


class SharedRoutingMoE(MoE):
    """Shared experts have outputs of the router, too: the sigmoids of the chosen and of the
    shared experts sum to 1 (Inkling).
    """

    groups: ClassVar[dict[str, str]] = {**MoE.groups, "router_scale": "router"}
    shared_experts: Stack
    num_shared: int
    num_experts: int
    router_scale: Weight  # one factor of all weights
    route_scale: float

    @property
    def shared_count(self) -> int:
        return int(self.num_shared)

    def forward(self, m: Machine[X], x: X) -> X:
        routed, shared = m.split(router_logits(self, m, x), self.num_experts, self.num_shared)
        chosen, scores = m.route(routed, self.correction, self)  # (B, T, k)
        weights = m.normalize_sum(m.concat(scores, m.act(shared, "sigmoid")))
        weights = m.scale_by_weight(m.scale(weights, self.route_scale), self.router_scale)
        own, *of_shared = m.split(weights, self.top_k, *(1,) * self.num_shared)
        y = m.experts(self, self.experts, x, chosen, own)
        for expert, factor in zip(self.shared_experts, of_shared, strict=True):
            y = m.add(y, m.multiply(expert(m, x), m.to_model_dtype(factor)))
        return y


FULL, SLIDING = TYPES = ("hybrid", "hybrid_sliding")
_GATE_UP = {
    f"mlp.{kind}.{{e}}.{x}.weight": f"mlp.{name}"
    for kind, name in (
        ("experts", "experts.w13_weight"),
        ("shared_experts", "shared_experts.shared_w13_weight"),
    )
    for x in ("gate", "up")
}
_CONVOLUTIONS = {
    "attn.k_conv": "attn.k_sconv",
    "attn.v_conv": "attn.v_sconv",
    "attn_conv": "attn_sconv",
    "mlp_conv": "mlp_sconv",
}
NAMES = HF.with_changes(
    layer="model.llm.layers.{l}.",
    outside={
        "embed": "model.llm.embed",
        "embed_norm": "model.llm.embed_norm",
        "norm": "model.llm.norm",
        "head": "model.llm.unembed",
    },
    inside={
        "attn_norm": "attn_norm",
        "attn.q": "attn.wq_du",
        "attn.k": "attn.wk_dv",
        "attn.v": "attn.wv_dv",
        "attn.o": "attn.wo_ud",
        "attn.q_norm": "attn.q_norm",
        "attn.k_norm": "attn.k_norm",
        "attn.relative": "attn.wr_du",
        "attn.distance.weight": "attn.rel_logits_proj.proj",
        "mlp_norm": "mlp_norm",
        **_CONVOLUTIONS,
        "mlp.gate": "mlp.w13_dn",
        "mlp.up": "mlp.w13_dn",
        "mlp.down": "mlp.w2_md",
        "mlp.scale": "mlp.global_scale",
        "mlp.router": "mlp.gate",
        "mlp.router_scale": "mlp.gate.global_scale",
        "mlp.correction": "mlp.gate.bias",
        **_GATE_UP,
        "mlp.experts.{e}.down.weight": "mlp.experts.w2_weight",
        "mlp.shared_experts.{e}.down.weight": "mlp.shared_experts.shared_w2_weight",
    },
    layouts={
        **dict.fromkeys(("mlp.gate", "mlp.up", *_GATE_UP), "rows"),
        "attn.distance.weight": "flip",
        **{f"{x}.weight": "unit" for x in _CONVOLUTIONS},
    },
)


@family("inkling_text", hf=NAMES, causal_class="InklingForCausalLM")
def inkling(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    norm, activation = rms(d, _eps(c)), c.activation("hidden_act")
    local, first = (
        layer_numbers(c, "local_layer_ids") if "local_layer_ids" in c else None,
        c.get("dense_mlp_idx", 0),
    )
    F = c.dim(
        "F", "dense_intermediate_size" if "dense_intermediate_size" in c else "intermediate_size"
    )
    dense = swiglu(d, F, activation).extended(WeightedMLP, scale=weight(1, role="scale"))
    mlps = {"dense": dense, "sparse": _moe(c, d, activation)}

    def layer(kind: str, mlp: str) -> ConvolvedLayer:
        attn, conv = _attention(c, d, kind), _convolution(c, d)
        return ConvolvedLayer(
            attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlps[mlp], attn_conv=conv, mlp_conv=conv
        )

    types = layer_kinds(
        c,
        L,
        TYPES,
        lambda i: SLIDING if (i in local if local is not None else (i + 1) % 6) else FULL,
    )
    layers = layers_from(layer, types, mlp_kinds(c, L, first), count_dim=L)
    divisor, known = (
        c.get("logits_mup_width_multiplier|embedding_multiplier", 24.0),
        c.positive_int("unpadded_vocab_size"),
    )
    if not divisor:
        raise c.error("logits_mup_width_multiplier", "is 0, and logits are divided by it")
    c.ignore(
        "intermediate_size",
        "rms_norm_eps_moe_gate",
        "shared_expert_sink",
        "num_mtp_layers",
        "chain_hidden_post_norm",
    )
    c.ignore("mtp_local_layer_ids", "mtp_hidden_states_first")
    context = c.positive_int(any_name("max_position_embeddings"))
    plain = decoder(
        V, d, layers, norm, tied=False, embed_norm=norm, context=context, logit_scale=1 / divisor
    )
    return plain if known is None or known >= V else plain.replace(kept_logits=known)


def _eps(c: Config) -> float:
    return c.get("rms_norm_eps", 1e-6)


def _convolution(c: Config, channels: int) -> ResidualConvolution:
    return ResidualConvolution(
        weight=weight(channels, c.dim("c", "conv_kernel_size|sconv_kernel_size", default=4))
    )


def _attention(c: Config, d: Expr, kind: str) -> ConvolvedAttention:
    """Read the attention of one type of layer."""
    H, K, h = heads = _heads(c, "swa_" if kind == SLIDING else "")
    window = c.get("sliding_window_size|sliding_window", 512) if kind == SLIDING else None
    D = Expr.const(window) if window else c.dim("D", "rel_extent", default=1024)
    R, floor, alpha = (
        c.dim("R", "d_rel", default=16),
        c.positive_int("log_scaling_n_floor"),
        c.get("log_scaling_alpha", 0.1),
    )
    scores = ScoreTransform(
        scale=1 / h,
        temperature=LogTuning(scale=alpha, floor=floor) if floor and kind == FULL else None,
    )
    norm, conv = rms(h, _eps(c)), _convolution(c, K * h)
    attn = gqa(
        d,
        heads,
        q_norm=norm,
        k_norm=norm,
        window=AttentionWindow(size=window),
        score_transform=scores,
    )
    return attn.extended(
        ConvolvedAttention,
        k_conv=conv,
        v_conv=conv,
        relative=linear(H * R, d),
        distance=linear(D, R),
        relative_dim=R,
    )


def _heads(c: Config, prefix: str) -> Heads:
    """Read the heads of layers without a window, or with one."""
    letters, defaults = (
        (("Hw", "Kw", "hw"), (64, 16, 128)) if prefix else (("H", "K", "h"), (64, 8, 128))
    )
    keys = (f"{prefix}num_attention_heads", f"{prefix}num_key_value_heads", f"{prefix}head_dim")
    H, K, h = (
        c.dim(letter, key, default=default)
        for letter, key, default in zip(letters, keys, defaults, strict=True)
    )
    if H % K:
        raise c.error(keys[1], f"is {K}, which does not divide the {H} attention heads")
    return Heads(H, K, h)


def _moe(c: Config, d: Expr, activation: str) -> SharedRoutingMoE:
    E, k, S = (
        c.dim("E", any_name("n_routed_experts")),
        c.dim("k", "num_experts_per_tok"),
        c.dim("S", "n_shared_experts", default=2),
    )
    own_width = "moe_intermediate_size" in c and "dense_intermediate_size" not in c
    expert = swiglu(
        d, c.dim("Fe", "moe_intermediate_size" if own_width else "intermediate_size"), activation
    )
    routed = mixture(
        d, E, k, expert, corrected=True, scoring="sigmoid", norm_topk_prob=False, fp32_router=True
    )
    return routed.replace(router=linear(E + S, d)).extended(
        SharedRoutingMoE,
        shared_experts=repeat(expert, S),
        num_shared=S,
        num_experts=E,
        router_scale=weight(1, role="scale"),
        route_scale=c.get("route_scale", 8.0),
    )
