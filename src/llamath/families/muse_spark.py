"""Muse Spark: Muse Glimmer's attention, and narrowed experts; what mixes each branch with its residual is counted only."""

from __future__ import annotations

from functools import cache

from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..core.blocks import Decoder, Layer, MoE, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.multimodal import CountedBlock
from ..core.tree import Block, Stack, Weight, repeat, sequence
from .muse_glimmer import FULL, SLIDING, glimmer_attention
from .registry import family
from .shared import layer_kinds

_EXPERTS = {f"mlp.moe.experts.{{e}}.{x}.weight": "mlp.experts.gate_up_proj" for x in ("gate", "up")}
NAMES = HF_SANDWICH.with_changes(
    inside={
        "attn.gate": "self_attn.gate_proj",
        **{f"mlp.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
        "mlp.moe.router": "mlp.gate",
        "mlp.moe.correction": "mlp.gate.e_score_correction_bias",
        **_EXPERTS,
        "mlp.moe.experts.{e}.down.weight": "mlp.experts.down_proj",
        "mlp.pre": "mlp.pre_expert_proj",
        "mlp.pre_norm": "mlp.pre_expert_norm",
        "mlp.out_norm": "mlp.experts.post_expert_norm",
        "mlp.post": "mlp.post_expert_proj",
        "mlp.attn_residual": "post_attention_residual_gate.gate",
        "mlp.residual": "post_feedforward_residual_gate.gate",
    }
)


@family(hf=NAMES)
def muse_spark(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, n = c.get("rms_norm_eps", 1e-5), int(L)
    norm, plain = rms(d, eps, offset=1.0), RMSNorm(eps=eps)
    types = layer_kinds(c, L, (SLIDING, FULL), lambda i: SLIDING if (n - 1 - i) % 4 else FULL)
    mlp_types = layer_kinds(c, L, ("dense", "sparse"), lambda _: "sparse", "mlp_layer_types")
    thetas = c.get("layer_rope_theta", [(n - 1 - i) % 4 for i in range(n)])
    if len(thetas) != n:
        raise c.error("layer_rope_theta", f"should be a list of {n} layers")

    @cache
    def layer(kind: str, rotary: bool, sparse: bool) -> Layer:
        attention = glimmer_attention(c, d, kind, rotary, num_kv_heads=16, head_dim=64, factor=5.4730064863875)
        return Layer(attn_norm=norm, attn=attention, attn_out_norm=plain, mlp_norm=norm, mlp=_mlp(c, d, sparse), mlp_out_norm=norm)

    c.ignore("residual_gate_temperature", "routed_scaling_factor", "output_router_logits", "post_norm_eps")
    layers = sequence((layer(x, bool(y), z == "sparse") for x, y, z in zip(types, thetas, mlp_types, strict=True)), count_dim=L)
    return decoder(
        V,
        d,
        layers,
        rms(d, eps),
        tied=c.get("tie_word_embeddings", False),
        embed_norm=plain,
        context=c.positive_int("max_position_embeddings"),
        logit_scale=c.get("output_multiplier", 0.1767766952966369),
        softcap=c.get("final_logit_softcapping", 20.0),
    )


def _mlp(c: Config, d: Expr, sparse: bool) -> CountedBlock:
    """The experts of a layer, or its MLP, and the factors of both residuals."""
    mix, activation = weight(d, role="scale"), c.activation("hidden_act")
    parts: dict[str, Weight | Block | Stack] = {"attn_residual": mix, "residual": mix}
    if not sparse:
        F = c.dim("F", "intermediate_size", default=16_384)
        parts |= {"gate": linear(F, d), "up": linear(F, d), "down": linear(d, F)}
        return CountedBlock(kind="mlp", parts=parts)
    e, Fe = c.dim("de", "moe_hidden_size", default=4096), c.dim("Fe", "moe_intermediate_size", default=4096)
    E, k = c.dim("E", "num_local_experts", default=256), c.dim("k", "num_experts_per_tok", default=8)
    moe = MoE(
        router=linear(E, d),
        correction=weight(E, role="bias").replace(buffer=True),
        experts=repeat(swiglu(e, Fe, activation), E, active=k),
        top_k=k,
        scoring="sigmoid",
    )
    parts |= {"moe": moe, "pre": linear(e, d), "pre_norm": rms(e, 1e-5), "out_norm": rms(e, 1e-8), "post": linear(d, e)}
    return CountedBlock(kind="mlp", parts=parts)
