"""Doge: attention to the keys that a learned mask keeps, and an MLP plus experts of a
single neuron (arXiv:2412.11834).

The family is counted only: neither the mask nor such experts are part of the machine.
"""

from __future__ import annotations

from math import isqrt
from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import MLP, Attention, Decoder, Embedding, Layer, Linear
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, side_table, swiglu, weight
from ..core.expr import Expr
from ..core.tree import Cut, Weight, counted_only, repeat
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        "attn.decay": "self_attn.A",
        "attn.mask": "self_attn.dt_proj",
        "attn_residual": "input_residual",
        "mlp.keys": "mlp.router_gate",
        "mlp.into": "mlp.down_embed",
        "mlp.out": "mlp.up_embed",
        "mlp_residual": "post_attention_residual",
    }
)


class MaskedAttention(Attention):
    """Attention whose scores get exp(decay · softplus(mask v)), one number for each key and head;
    a query attends to the `kept` keys for which it is largest.
    """

    cuts: ClassVar[dict[str, Cut]] = {**Attention.cuts, "mask": Cut(1, "kv_heads", "copy")}
    decay: Weight
    mask: Linear
    kept: int

    forward = counted_only("Doge's mask of keys")


class NeuronExperts(MLP):
    """An MLP plus experts of one neuron each, rows of two tables: s = ⌊√E⌋ keys for each half of
    their numbers, of which a token chooses `top_k` pairs (arXiv:2407.04153).
    """

    groups: ClassVar[dict[str, str]] = dict.fromkeys(("keys", "into", "out"), "experts")
    cuts: ClassVar[dict[str, Cut]] = {
        **MLP.cuts,
        **dict.fromkeys(("keys", "into", "out"), Cut(0)),
    }
    computes_on_shards: ClassVar[bool] = False
    keys: Linear
    into: Embedding
    out: Embedding
    top_k: int
    norm_topk_prob: bool

    forward = counted_only("Doge's experts of one neuron")


class WeightedResidualLayer(Layer):
    """A layer that multiplies each channel of the residual stream before it adds a branch."""

    attn_residual: Weight
    mlp_residual: Weight

    forward = counted_only("Doge's weighted residual connection")


@family(hf=NAMES, causal_class="DogeForCausalLM", has_linear_routers=True)
def doge(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, bias, eps = c.heads(d), c.get("attention_bias", False), c.get("rms_norm_eps", 1e-6)
    K, h = heads.num_kv_heads, heads.head_dim
    attn = gqa(
        d,
        heads,
        bias,
        rope=read_rope(c, h),
        window=AttentionWindow(size=c.positive_int("sliding_window")),
        q_norm=rms(h, eps),
        k_norm=rms(h, eps),
    ).extended(
        MaskedAttention,
        decay=weight(K, role="scale"),
        mask=linear(K, K * h, bias),
        kept=c.get("keep_window_size", 2048),
    )
    norm, factors = rms(d, eps), weight(d, role="scale")
    mlp = swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False))
    layer = WeightedResidualLayer(
        attn_norm=norm,
        attn=attn,
        mlp_norm=norm,
        mlp=_with_experts(c, d, mlp) if c.get("is_moe", False) else mlp,
        attn_residual=factors,
        mlp_residual=factors,
    )
    c.ignore("num_experts", "num_experts_per_tok", "norm_topk_prob")
    return decoder(
        V,
        d,
        repeat(layer, c.dim("L", "num_hidden_layers")),
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _with_experts(c: Config, d: int, mlp: MLP) -> NeuronExperts:
    """Read the experts that are added to an MLP."""
    E, k = c.dim("E", "num_experts", default=16_384), c.get("num_experts_per_tok", 64)
    root = Expr("s", isqrt(E))
    if not 0 < k <= root**2:
        raise c.error("num_experts_per_tok", f"is {k}, of {root}² pairs of keys")
    return mlp.extended(
        NeuronExperts,
        keys=linear(2 * root, d),
        into=side_table(E, d, rows_read=k),
        out=side_table(E, d, rows_read=k),
        top_k=k,
        norm_topk_prob=c.get("norm_topk_prob", False),
    )
