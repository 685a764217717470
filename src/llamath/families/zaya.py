"""ZAYA: attention whose queries and keys pass two convolutions, half of each value from the token
before, and experts whose router reads that of the layer before (arXiv:2605.05365).

The family is counted only: neither the convolutions nor such routers are part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import AttentionBase, Decoder, Layer, Linear, MoE, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, linear, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.mixers import Convolution, convolution
from ..core.tree import Block, Cut, Weight, counted_only
from .layers_shared import layer_kinds, layers_from
from .mistral4 import GATE_UP
from .registry import family
from .rope_shared import rope_of_type

_SCALES = ("hidden_states_scale", "hidden_states_bias", "residual_scale", "residual_bias")
_PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj_current", "v_before": "v_proj_delayed"}
NAMES = HF.with_changes(
    outside={
        "input_scale": "model.input_hidden_states_scale",
        "input_bias": "model.input_hidden_states_bias",
    },
    inside={
        **{f"attn.{x}": f"self_attn.qkv_proj.{y}" for x, y in _PROJECTIONS.items()},
        "attn.depthwise": "self_attn.qkv_proj.conv_qk_depthwise",
        "attn.grouped": "self_attn.qkv_proj.conv_qk_grouped",
        "attn.temperature": "self_attn.qk_norm.temp",
        "attn.o": "self_attn.o_proj",
        **{
            f"{ours}.{x}": f"{theirs}.{x}"
            for ours, theirs in (
                ("attn_residual", "post_attention_residual_scale"),
                ("mlp_residual", "post_mlp_residual_scale"),
            )
            for x in _SCALES
        },
        "mlp.into_router": "mlp.gate.down_proj",
        "mlp.states_scale": "mlp.gate.router_states_scale",
        "mlp.router_norm": "mlp.gate.router_mlp.norm",
        "mlp.first_router": "mlp.gate.router_mlp.fc1",
        "mlp.second_router": "mlp.gate.router_mlp.fc2",
        "mlp.router": "mlp.gate.router_mlp.out_proj",
        "mlp.correction": "mlp.gate.balancing_biases",
        **{f"{x}.weight": "mlp.experts.gate_up_proj" for x in GATE_UP},
        "mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
    },
    layouts={"attn.depthwise.weight": "unit"},
)


class ConvolvedAttention(AttentionBase):
    """Attention whose queries and keys pass a convolution of each channel, and one of each head;
    half of a value's channels are projected from the token before (arXiv:2510.04476).
    """

    cuts: ClassVar[dict[str, Cut]] = {
        "q": Cut(0, "heads"),
        **dict.fromkeys(("k", "v", "v_before"), Cut(0, "kv_heads", "copy")),
        "o": Cut(1, "heads"),
    }
    q: Linear
    k: Linear
    v: Linear
    v_before: Linear
    depthwise: Convolution
    grouped: Convolution  # [channels, h, taps]
    temperature: Weight  # of the normalized keys, one number for each head
    o: Linear
    heads: int
    kv_heads: int
    head_dim: int

    forward = counted_only("ZAYA's convolutions of queries and keys")


class ResidualScaling(Block):
    """(y + b) · s + (x + b') · s' for the residual stream x and the output y of a branch."""

    group: ClassVar[str] = "norm"
    hidden_states_scale: Weight
    hidden_states_bias: Weight
    residual_scale: Weight
    residual_bias: Weight

    forward = counted_only("ZAYA's scaling of residuals")


class ZayaLayer(Layer):
    """A layer whose residual stream and branches are scaled where they are added."""

    attn_residual: ResidualScaling
    mlp_residual: ResidualScaling


class CarriedMoE(MoE):
    """Experts, and one without weights, chosen by an MLP of what a narrow matrix makes of x, plus
    the same of the layer before.
    """

    groups: ClassVar[dict[str, str]] = {
        **MoE.groups,
        **dict.fromkeys(("into_router", "states_scale", "first_router", "second_router"), "router"),
    }
    into_router: Linear
    states_scale: Weight | None = None
    router_norm: RMSNorm
    first_router: Linear
    second_router: Linear

    forward = counted_only("ZAYA's router")


class ScaledInputDecoder(Decoder):
    """A model whose embeddings are scaled and shifted by channel."""

    groups: ClassVar[dict[str, str]] = {
        **Decoder.groups,
        **dict.fromkeys(("input_scale", "input_bias"), "norm"),
    }
    input_scale: Weight
    input_bias: Weight


_HYBRID, _SLIDING = "hybrid", "hybrid_sliding"
_ROPE = {_HYBRID: 5e6, _SLIDING: 1e4}


@family(hf=NAMES, causal_class="ZayaForCausalLM", has_linear_routers=True)
def zaya(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    norm = rms(d, c.get("rms_norm_eps", 1e-5))
    mixers = {kind: _attention(c, d, kind) for kind in (_HYBRID, _SLIDING)}
    c.require("lm_head_bias", False, "no published model has it")
    scale, shift = weight(d, role="scale"), weight(d, role="bias")
    scaling = ResidualScaling(
        hidden_states_scale=scale,
        hidden_states_bias=shift,
        residual_scale=scale,
        residual_bias=shift,
    )
    experts = {first: _experts(c, d, norm.eps, first) for first in (True, False)}

    def layer(kind: str, first: bool) -> ZayaLayer:
        plain = Layer(attn_norm=norm, attn=mixers[kind], mlp_norm=norm, mlp=experts[first])
        return plain.extended(ZayaLayer, attn_residual=scaling, mlp_residual=scaling)

    types = layer_kinds(c, L, mixers, lambda _: _HYBRID)
    if _SLIDING in types and "sliding_window" not in c:
        raise c.error("sliding_window", "is missing", f"layer_types lists {_SLIDING}")
    layers = layers_from(layer, types, (i == 0 for i in range(L)), count_dim=L)
    tied, context = c.get("tie_word_embeddings", True), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, context=context).extended(
        ScaledInputDecoder, input_scale=scale, input_bias=shift
    )


def _attention(c: Config, d: Expr, kind: str) -> ConvolvedAttention:
    H, K, h = c.heads(d, num_kv_heads=2, head_dim=128)
    bias, channels = c.get("attention_bias", False), (H + K) * h
    if K * h % 2:
        raise c.error("head_dim", f"is {h}: half of {K * h} channels of values are no whole number")
    t0, t1 = c.dim("c", "cca_time0", default=2), c.dim("cg", "cca_time1", default=2)
    grouped = Convolution(weight=weight(channels, h, t1), bias=weight(channels, role="bias"))
    window = c.positive_int("sliding_window") if kind == _SLIDING else None
    settings = c.sub("rope_parameters")
    settings.ignore("rope_type")  # in published configs, beside those of each type
    partial = {"theta": _ROPE[kind], "partial": 0.5}
    rope = rope_of_type(c, kind, h, **partial)
    return ConvolvedAttention(
        q=linear(H * h, d, bias),
        k=linear(K * h, d, bias),
        v=linear(K * h // 2, d, bias),
        v_before=linear(K * h // 2, d, bias),
        depthwise=convolution(channels, t0, bias=True),
        grouped=grouped,
        temperature=weight(K, role="scale"),
        o=linear(d, H * h, bias),
        heads=H,
        kv_heads=K,
        head_dim=h,
        rope=rope,
        window=AttentionWindow(size=window),
    )


def _experts(c: Config, d: Expr, eps: float, first: bool) -> CarriedMoE:
    E, k = c.dim("E", "num_experts", default=16), c.dim("k", "num_experts_per_tok", default=1)
    c.require("num_experts_per_tok", 1, "transformers' class computes nothing else")
    Fe, R = c.dim("Fe", "moe_intermediate_size"), c.dim("R", "router_hidden_size", default=256)
    moe = mixture(d, E, k, swiglu(d, Fe, c.activation("hidden_act")), norm_topk_prob=False)
    router = {
        "router": linear(E + 1, R),
        "correction": weight(E + 1, role="bias").replace(buffer=True),
        "zero_experts": 1,
    }
    return moe.replace(**router).extended(
        CarriedMoE,
        into_router=linear(R, d, True),
        states_scale=None if first else weight(R, role="scale"),
        router_norm=rms(R, eps),
        first_router=linear(R, R, True),
        second_router=linear(R, R, True),
    )
