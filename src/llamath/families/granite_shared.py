"""Readers that Granite's families share: four multipliers, experts stacked in two tensors, and a
shared MLP beside them.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import MLP, Attention, Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.positions import Rope
from ..core.tree import Block, Stack
from .layers_shared import layer_kinds, layers_from
from .rope_shared import read_rope

NAMES_MOE = HF.with_changes(
    inside={
        "mlp.router": "block_sparse_moe.router.layer",
        "mlp.experts.{e}.gate": "block_sparse_moe.input_linear",
        "mlp.experts.{e}.up": "block_sparse_moe.input_linear",
        "mlp.experts.{e}.down": "block_sparse_moe.output_linear",
        "mlp.shared.gate": "shared_mlp.input_linear",
        "mlp.shared.up": "shared_mlp.input_linear",
        "mlp.shared.down": "shared_mlp.output_linear",
    }
)


def granite_attention(
    c: Config,
    d: Expr,
    rope: Rope | None,
    window: int | None = None,
    sinks: bool = False,
    kv_heads: int | None = None,
) -> Attention:
    """Read attention whose scores are multiplied by `attention_multiplier`; `kv_heads` is the
    default of the family.
    """
    heads = c.heads(d, num_kv_heads=kv_heads)
    return gqa(
        d,
        heads,
        c.get("attention_bias", False),
        rope=rope,
        window=AttentionWindow(size=window),
        sinks=weight(heads.num_heads, role="bias") if sinks else None,
        score_transform=ScoreTransform(scale=c.get("attention_multiplier", 1.0)),
    )


def granite_layer(c: Config, d: Expr, attn: Block, mlp: Block, eps: float = 1e-6) -> Layer:
    """Return a layer whose branches are multiplied by `residual_multiplier`."""
    norm = rms(d, c.get("rms_norm_eps", eps))
    return Layer(
        attn_norm=norm,
        attn=attn,
        mlp_norm=norm,
        mlp=mlp,
        residual_multiplier=c.get("residual_multiplier", 1.0),
    )


def granite_experts(c: Config, d: Expr, shared: MLP | None = None) -> MoE:
    """Read the mixture of experts."""
    E, k = c.dim("E", "num_local_experts", default=8), c.dim("k", "num_experts_per_tok", default=2)
    expert = swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act"))
    return mixture(d, E, k, expert, shared=shared)


def granite_shared_mlp(c: Config, d: Expr, default: int) -> MLP | None:
    """Read the MLP that every token passes through; None if its width is 0."""
    Fs = c.dim("Fs", "shared_intermediate_size", default=default, least=0)
    return swiglu(d, Fs, c.activation("hidden_act")) if Fs else None


def windowed_layers(
    c: Config, d: Expr, mlp: Block, kv_heads: int | None = None, eps: float = 1e-6
) -> Stack:
    """Read layers with sinks, of which every fourth has full attention and the others a window,
    each with its own rotary base.
    """
    L, window = c.dim("L", "num_hidden_layers"), c.nullable("sliding_window", 128)
    types = layer_kinds(
        c,
        L,
        ("full_attention", "sliding_attention"),
        lambda i: "sliding_attention" if i % 4 else "full_attention",
    )
    shared = read_rope(c, c.heads(d, num_kv_heads=kv_heads).head_dim)
    bases = c.numbers("layer_rope_theta") if "layer_rope_theta" in c else (shared.theta,) * L
    if len(bases) != L:
        raise c.error(
            "layer_rope_theta",
            f"should have one number for each of the {L} layers, not {len(bases)}",
        )

    def layer(kind: str, theta: float) -> Layer:
        rope = shared.replace(theta=theta) if theta else None
        attn = granite_attention(
            c,
            d,
            rope,
            window if kind == "sliding_attention" else None,
            sinks=True,
            kv_heads=kv_heads,
        )
        return granite_layer(c, d, attn, mlp, eps)

    return layers_from(layer, types, bases, count_dim=L)


def granite_decoder(
    c: Config, d: Expr, layers: Stack, tied: bool = False, eps: float = 1e-6
) -> Decoder:
    """Return the model, with the multipliers of embeddings and logits."""
    if not (divisor := c.get("logits_scaling", 1.0)):
        raise c.error("logits_scaling", "is 0, and logits are divided by it")
    V, norm = c.dim("V", "vocab_size"), rms(d, c.get("rms_norm_eps", eps))
    embed, context = (
        embedding(V, d, c.get("embedding_multiplier", 1.0)),
        c.positive_int("max_position_embeddings"),
    )
    tied = c.get("tie_word_embeddings", tied)
    return decoder(V, d, layers, norm, tied, embed=embed, logit_scale=1 / divisor, context=context)
