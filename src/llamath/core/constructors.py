"""Constructors of common blocks, which families compose: linear layers, norms, attention, MLPs,
the decoder.
"""

from __future__ import annotations

from .attention_facts import AttentionWindow, Heads, QKPreprocess, ScoreTransform
from .blocks import (
    MLP,
    Attention,
    Decoder,
    Embedding,
    ExpertGroups,
    LayerNorm,
    Linear,
    MoE,
    Norm,
    PerLayerEmbedding,
    RMSNorm,
)
from .expr import Expr
from .positions import Rope
from .tree import Role, Stack, Weight, repeat

_FULL, _NO_PREPROCESS, _PLAIN_SCORES = AttentionWindow(), QKPreprocess(), ScoreTransform()


def weight(*shape: int, role: Role = "matmul", tied: str = "", dtype: str = "") -> Weight:
    """A weight of this shape."""
    return Weight(shape=tuple(map(Expr.const, shape)), role=role, tied=tied, dtype=dtype)


def linear(out: int, into: int, bias: bool = False) -> Linear:
    """A linear layer `[out, into]`, with or without a bias."""
    return Linear(weight=weight(out, into), bias=weight(out, role="bias") if bias else None)


def embedding(rows: int, d: int, scale: float = 1.0) -> Embedding:
    """An embedding `[rows, d]`."""
    return Embedding(weight=weight(rows, d, role="lookup"), scale=scale)


def side_table(rows: int, d: int, scale: float = 1.0, *, rows_read: int = 1) -> Embedding:
    """A table `[rows, d]` beside the token embedding, of which a token reads so many rows: no
    others count as active.
    """
    found = embedding(rows, d, scale)
    return found.replace(weight=found.weight.replace(rows_read=rows_read))


def rms(d: int, eps: float, offset: float = 0.0) -> RMSNorm:
    """An RMS norm over d numbers."""
    return RMSNorm(weight=weight(d, role="scale"), eps=eps, offset=offset)


def layer_norm(d: int, eps: float, bias: bool = True) -> LayerNorm:
    """A layer norm over d numbers."""
    return LayerNorm(
        weight=weight(d, role="scale"), bias=weight(d, role="bias") if bias else None, eps=eps
    )


def gqa(
    d: int,
    heads: Heads,
    bias: bool = False,
    o_bias: bool | None = None,
    *,
    rope: Rope | None = None,
    window: AttentionWindow = _FULL,
    gate: Linear | None = None,
    q_norm: Norm | Stack | None = None,
    k_norm: Norm | Stack | None = None,
    sinks: Weight | None = None,
    qk_preprocess: QKPreprocess = _NO_PREPROCESS,
    score_transform: ScoreTransform = _PLAIN_SCORES,
    gate_activation: str = "sigmoid",
    gate_per_head: bool = False,
) -> Attention:
    """Grouped-query attention; `o_bias` is `bias` unless given."""
    H, K, h = heads
    return Attention(
        q=linear(H * h, d, bias),
        k=linear(K * h, d, bias),
        v=linear(K * h, d, bias),
        o=linear(d, H * h, bias if o_bias is None else o_bias),
        q_norm=q_norm,
        k_norm=k_norm,
        gate=gate,
        sinks=sinks,
        heads=H,
        kv_heads=K,
        head_dim=h,
        rope=rope,
        window=window,
        qk_preprocess=qk_preprocess,
        score_transform=score_transform,
        gate_activation=gate_activation,
        gate_per_head=gate_per_head,
    )


def swiglu(d: int, F: int, activation: str = "silu", bias: bool = False) -> MLP:
    """A gated MLP of three matrices: gate and up `[F, d]`, down `[d, F]`."""
    return MLP(
        gate=linear(F, d, bias),
        up=linear(F, d, bias),
        down=linear(d, F, bias),
        activation=activation,
    )


def mlp(d: int, F: int, activation: str, bias: bool = False) -> MLP:
    """An MLP of two matrices: up `[F, d]`, down `[d, F]`."""
    return MLP(up=linear(F, d, bias), down=linear(d, F, bias), activation=activation)


def mixture(
    d: int,
    E: int,
    k: int,
    expert: MLP,
    *,
    corrected: bool = False,
    shared: MLP | None = None,
    scoring: str = "softmax",
    norm_topk_prob: bool = True,
    routed_scaling_factor: float = 1.0,
    expert_groups: ExpertGroups | None = None,
    fp32_router: bool = False,
) -> MoE:
    """A mixture of E experts, k of them for a token; a learned bias may correct the choice: a
    buffer in classes and a tensor in files.
    """
    return MoE(
        router=linear(E, d),
        correction=weight(E, role="bias").replace(buffer=True) if corrected else None,
        experts=repeat(expert, E, active=k),
        shared=shared,
        top_k=k,
        scoring=scoring,
        norm_topk_prob=norm_topk_prob,
        routed_scaling_factor=routed_scaling_factor,
        expert_groups=expert_groups,
        fp32_router=fp32_router,
    )


def unembedding(V: int, d: int, tied: bool, bias: bool = False) -> Linear:
    """The head `[V, d]`; a tied one shares the matrix of the embedding."""
    return Linear(
        weight=weight(V, d, tied="embed.weight" if tied else ""),
        bias=weight(V, role="bias") if bias else None,
    )


def decoder(
    V: int,
    d: int,
    layers: Stack,
    norm: Norm | None,
    tied: bool,
    *,
    context: int | None = None,
    embed: Embedding | None = None,
    positions: Embedding | None = None,
    embed_norm: Norm | None = None,
    per_layer: PerLayerEmbedding | None = None,
    head: Linear | None = None,
    mtp: Stack | None = None,
    softcap: float | None = None,
    logit_scale: float = 1.0,
) -> Decoder:
    """The whole model; without `embed` and `head` they are plain matrices, and a tied head has
    no parameters of its own.
    """
    return Decoder(
        embed=embed or embedding(V, d),
        positions=positions,
        embed_norm=embed_norm,
        per_layer=per_layer,
        layers=layers,
        norm=norm,
        head=head or unembedding(V, d, tied),
        mtp=mtp,
        width=d,
        vocab=V,
        context=context,
        softcap=softcap,
        logit_scale=logit_scale,
    )
