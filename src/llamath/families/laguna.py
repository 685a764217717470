"""Laguna: softplus gates on the heads, of which each layer has its own number, two rotary bases,
experts chosen by sigmoid.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow, Heads
from ..core.blocks import Attention, Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, mixture, rms, swiglu
from ..core.expr import Expr
from .layers_shared import ints_by_layer, layer_kinds, layers_from, mlp_kinds
from .registry import family
from .rope_shared import rope_of_type

NAMES = HF.with_changes(
    inside={
        "attn.gate": "self_attn.g_proj",
        "mlp.correction": "mlp.experts.e_score_correction_bias",
        **{f"mlp.shared.{x}": f"mlp.shared_expert.{x}_proj" for x in ("gate", "up", "down")},
    },
    fused={
        "mlp.correction": "mlp.gate.e_score_correction_bias",
        **{f"mlp.shared.{x}": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")},
    },
)
ROPES = {"full_attention": (5e5, 0.5), "sliding_attention": (1e4, 1.0)}
"""Type of a layer → the default base of its rotary embedding, and the share of a head that
rotates."""


@family(hf=NAMES, causal_class="LagunaForCausalLM")
def laguna(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    norm, activation = rms(d, c.get("rms_norm_eps", 1e-6)), c.activation("hidden_act")
    H, K, h = c.heads(d, num_kv_heads=8, head_dim=128)
    mlps = {
        "dense": swiglu(d, c.dim("F", "intermediate_size"), activation),
        "sparse": _moe(c, d, activation),
    }
    types = layer_kinds(c, L, ROPES, lambda _: "full_attention")
    heads = ints_by_layer(c, "num_attention_heads_per_layer", L, H)

    def layer(kind: str, mlp: str, n: int) -> Layer:
        if n % K:
            raise c.error(
                "num_attention_heads_per_layer",
                f"has {n} heads, which the {K} key/value heads do not divide",
            )
        attn = _attention(c, d, Heads(H if n == H else Expr.const(n), K, h), kind)
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlps[mlp])

    layers = layers_from(layer, types, mlp_kinds(c, L, first=1), heads, count_dim=L)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _attention(c: Config, d: int, heads: Heads, kind: str) -> Attention:
    H, _, h = heads
    gating = c.data.get("gating", True)
    if gating not in (True, "per-head", "per-element"):
        raise c.error("gating", f"is {gating!r:.60}", "known: true, per-head, per-element")
    c.ignore("gating")
    norm, window = rms(h, c.get("rms_norm_eps", 1e-6)), c.get("sliding_window", 512)
    return gqa(
        d,
        heads,
        c.get("attention_bias", False),
        rope=rope_of_type(c, kind, h, *ROPES[kind]),
        window=AttentionWindow(size=window if kind == "sliding_attention" else None),
        q_norm=norm,
        k_norm=norm,
        gate=linear(H * h if gating == "per-element" else H, d),
        gate_activation="softplus",
        gate_per_head=gating != "per-element",
    )


def _moe(c: Config, d: Expr, activation: str) -> MoE:
    c.require(
        "moe_apply_router_weight_on_input", False, "transformers supports nothing else either"
    )
    E, k, Fe = (
        c.dim("E", "num_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    expert, shared = (
        swiglu(d, Fe, activation),
        swiglu(d, c.dim("Fs", "shared_expert_intermediate_size"), activation),
    )
    factor, cap = (
        c.get("moe_routed_scaling_factor", 1.0),
        c.get("moe_router_logit_softcapping", 0.0) or None,
    )
    moe = mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        shared=shared,
        scoring="sigmoid",
        routed_scaling_factor=factor,
    )
    return moe.replace(router_softcap=cap)
