"""Grok 2: norms before and after each branch, capped scores, a wide MLP next to eight experts.

The family is counted only: its scores are scaled by position after they are capped, which is not
part of the machine, and public code disagrees on the activation of its MLP. Its published config
names the type of another model, and this class in `architectures`.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Attention, Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, mixture, rms, swiglu
from ..core.expr import Expr
from ..core.positions import Rope
from ..core.tree import counted_only, repeat
from .registry import family

NAMES = HF.with_changes(
    inside={
        "attn_norm": "pre_attn_norm",
        "attn_out_norm": "post_attn_norm",
        "mlp_norm": "pre_moe_norm",
        "mlp_out_norm": "post_moe_norm",
        "mlp.router": "block_sparse_moe.gate",
        **{
            f"mlp.experts.{{e}}.{x}": f"block_sparse_moe.experts.{{e}}.w{n}"
            for x, n in (("gate", 1), ("down", 2), ("up", 3))
        },
        **{f"mlp.shared.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
    }
)


class GrokAttention(Attention):
    """Attention whose scores are capped, and then multiplied by log(t) / log(length) for queries
    at positions t beyond a length.
    """

    temperature_length: int

    forward = counted_only("Grok 2's scaling of capped scores by position")


@family(hf=NAMES, gguf_arch="grok", architectures="Grok1ForCausalLM Grok1ModelForCausalLM")
def grok1(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-5))
    for key, only in (
        ("rope_type", "original"),
        ("rope_rotate_half_dims", False),
        ("sliding_window_size", -1),
        ("global_attn_every_n", 1),
        ("attn_logit_softcapping_method", "tanh"),
        ("attn_output_multiplier", 1.0),
        ("merge_gate_up", True),
    ):
        c.require(key, only, "the published model has it")
    # settings of other rope_types
    c.ignore("original_max_position_embeddings", "scaling_factor", "extrapolation_factor")
    c.ignore("attn_factor", "beta_fast", "beta_slow")
    layer = Layer(
        attn_norm=norm,
        attn=_attention(c, d),
        attn_out_norm=norm,
        mlp_norm=norm,
        mlp=_experts(c, d),
        mlp_out_norm=norm,
    )
    embed = embedding(V, d, c.get("embedding_multiplier_scale", 1.0))
    tree = decoder(
        V,
        d,
        repeat(layer, c.dim("L", "num_hidden_layers")),
        norm,
        tied=c.get("tie_word_embeddings", False),
        embed=embed,
        context=c.positive_int("max_position_embeddings|context_len"),
        softcap=c.number("final_logit_softcapping"),
    )
    return tree.replace(logit_scale=c.get("output_multiplier_scale", 1.0))


def _attention(c: Config, d: Expr) -> GrokAttention:
    heads = c.heads(d, head_dim=128)
    rope = Rope(theta=c.get("rope_theta", 1e4), dim=heads.head_dim)
    scores = ScoreTransform(softcap=c.get("attn_logit_softcapping", 30.0))
    length = c.get("attn_temperature_len", -1)
    return gqa(d, heads, rope=rope, score_transform=scores).extended(
        GrokAttention, temperature_length=length
    )


def _experts(c: Config, d: Expr) -> MoE:
    E, k = c.dim("E", "num_local_experts"), c.dim("k", "num_experts_per_tok")
    residual = c.get("residual_moe", False)
    F = c.dim("F", "intermediate_size")
    Fe = c.dim("Fe", "moe_intermediate_size", default=F)
    activation = c.activation("hidden_act", "gelu")
    return mixture(
        d,
        E,
        k,
        swiglu(d, Fe, activation),
        shared=swiglu(d, F, activation) if residual else None,
        norm_topk_prob=not residual,
        fp32_router=True,
    ).replace(
        router_softcap=c.get("router_logit_softcapping", 30.0),
        output_factor=2**-0.5 if residual else 1.0,
    )
