"""Muse Spark: Muse Glimmer's attention with normalized heads, narrowed experts, and learned shares
of each branch and its residual.

The family is counted only: residual connections with learned shares is not part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..core.blocks import Decoder, LatentMoE, Layer, MoE, Norm, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, linear, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.tree import Block, Weight, counted_only
from .layers_shared import layer_kinds, layers_from, mlp_kinds
from .muse_glimmer import FULL, SLIDING, glimmer_attention
from .registry import family

NAMES = HF_SANDWICH.with_changes(
    inside={
        "attn.gate": "self_attn.gate_proj",
        **{f"mlp.experts.{{e}}.{x}.weight": "mlp.experts.gate_up_proj" for x in ("gate", "up")},
        "mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
        "mlp.latent_down": "mlp.pre_expert_proj",
        "mlp.input_norm": "mlp.pre_expert_norm",
        "mlp.expert_norm": "mlp.experts.post_expert_norm",
        "mlp.latent_up": "mlp.post_expert_proj",
        "attn_blend": "post_attention_residual_gate.gate",
        "mlp_blend": "post_feedforward_residual_gate.gate",
    }
)


class NormedLatentMoE(LatentMoE):
    """Experts in a latent space that is normalized; one norm of all experts applies to the
    output of each.
    """

    input_norm: Norm
    expert_norm: Norm

    forward = counted_only("Muse Spark's mixture of experts")


class BlendedLayer(Layer):
    """x = √(1 − b²) · x + b · branch, for both branches, with a learned b in each channel."""

    groups: ClassVar[dict[str, str]] = {"attn_blend": "norm", "mlp_blend": "norm"}
    attn_blend: Weight
    mlp_blend: Weight

    forward = counted_only("Muse Spark's residual connection")


@family("muse_spark_text", hf=NAMES)
def muse_spark(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, out_eps, n = c.get("rms_norm_eps", 1e-5), c.get("post_norm_eps", 1e-8), int(L)
    norm, plain = rms(d, eps, offset=1.0), RMSNorm(eps=eps)
    types = layer_kinds(c, L, (SLIDING, FULL), lambda i: SLIDING if (n - 1 - i) % 4 else FULL)
    thetas = c.get("layer_rope_theta", [(n - 1 - i) % 4 for i in range(n)])
    if len(thetas) != n:
        raise c.error("layer_rope_theta", f"should be a list of {n} layers")

    def layer(kind: str, rotary: bool, mlp: str) -> Layer:
        attention = glimmer_attention(
            c, d, kind, rotary, num_kv_heads=16, head_dim=64, factor=5.4730064863875, theta=5e5
        )
        return BlendedLayer(
            attn_norm=norm,
            attn=attention.replace(output_norm=plain),
            attn_out_norm=RMSNorm(eps=out_eps),
            mlp_norm=norm,
            mlp=_experts(c, d, eps, out_eps) if mlp == "sparse" else _mlp(c, d),
            mlp_out_norm=rms(d, out_eps, offset=1.0),
            attn_blend=weight(d, role="scale"),
            mlp_blend=weight(d, role="scale"),
        )

    c.ignore(
        "output_router_logits",
        "output_multiplier",
        "residual_gate_temperature",
        "tie_word_embeddings",
    )
    layers = layers_from(layer, types, map(bool, thetas), mlp_kinds(c, L, first=0), count_dim=L)
    context, cap = c.positive_int("max_position_embeddings"), c.get("final_logit_softcapping", 20.0)
    return decoder(V, d, layers, rms(d, eps), False, embed_norm=plain, context=context, softcap=cap)


def _mlp(c: Config, d: Expr) -> Block:
    return swiglu(d, c.dim("F", "intermediate_size", default=16_384), c.activation("hidden_act"))


def _experts(c: Config, d: Expr, eps: float, out_eps: float) -> MoE:
    e, Fe = (
        c.dim("de", "moe_hidden_size", default=4096),
        c.dim("Fe", "moe_intermediate_size", default=4096),
    )
    E, k = (
        c.dim("E", "num_local_experts", default=256),
        c.dim("k", "num_experts_per_tok", default=8),
    )
    factor = c.get("routed_scaling_factor", 1.0)
    expert = swiglu(e, Fe, c.activation("hidden_act"))
    moe = mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        scoring="sigmoid",
        routed_scaling_factor=factor,
        fp32_router=True,
    )
    return moe.extended(
        NormedLatentMoE,
        latent_down=linear(e, d),
        latent_up=linear(d, e),
        input_norm=rms(e, eps, offset=1.0),
        expert_norm=rms(e, out_eps, offset=1.0),
    )
