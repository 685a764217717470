"""Readers of hyper-connections and clamped experts: Hy4 and DeepSeek-V4."""

from __future__ import annotations

from math import exp
from typing import ClassVar

from ..core.blocks import (
    MLP,
    Decoder,
    Layer,
    LimitedMLP,
    Norm,
    RMSNorm,
    apply_optional,
    residual_branch,
)
from ..core.config import Config
from ..core.constructors import weight
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.tree import Block, Weight


class StreamGate(Block):
    """factor · sigmoid(scale · W x + b) + eps: one number for each residual stream, from all
    streams (n · d numbers).
    """

    weight: Weight
    bias: Weight
    scale: Weight
    factor: float = 1.0
    eps: float = 0.0

    def forward(self, m: Machine[X], x: X) -> X:
        y = m.act(m.linear(m.scale_by_weight(x, self.scale), self.weight, self.bias), "sigmoid")
        y = m.scale(y, self.factor)
        return m.offset(y, self.eps) if self.eps else y


class StreamMixer(Block):
    """An n × n matrix for each token, whose rows and columns sum to 1: sinkhorn(scale · W x + b)
    (arXiv:2512.24880).
    """

    weight: Weight
    bias: Weight
    scale: Weight
    streams: int
    iterations: int
    eps: float

    def forward(self, m: Machine[X], x: X) -> X:
        y = m.linear(m.scale_by_weight(x, self.scale), self.weight, self.bias)
        return m.sinkhorn(m.split_heads(y, self.streams), self.iterations, self.eps)


class StreamSum(Block):
    """Σ preₙ · xₙ over residual streams x, with a `StreamGate` pre of the normalized streams."""

    group: ClassVar[str] = "mlp"
    norm: Norm
    pre: StreamGate
    sizes: tuple[int, ...]  # of the streams

    def forward(self, m: Machine[X], x: X) -> X:
        return _sum_streams(self, m, m.to_float32(x), self.norm(m, m.to_float32(x)))


class HyperConnection(StreamSum):
    """Hyper-connections (arXiv:2409.19606): a branch reads Σ preₙ · xₙ, and postₙ · y is added
    to stream n, or to a mixture of streams.
    """

    post: StreamGate
    mix: StreamMixer | None = None


class HyperLayer(Layer):
    """A layer on several residual streams, `(B, T, n · d)`, each branch with hyper-connections
    (Hy4).
    """

    group: ClassVar[str] = "mlp"
    attn_hc: HyperConnection
    mlp_hc: HyperConnection

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        y, normed = _read_streams(self.attn_hc, m, x)
        y = residual_branch(
            self, m, self.attn, apply_optional(self.attn_norm, m, y), self.attn_out_norm
        )
        x = _add_to_streams(self.attn_hc, m, x, y, normed)
        y, normed = _read_streams(self.mlp_hc, m, x)
        y = residual_branch(
            self, m, self.mlp, apply_optional(self.mlp_norm, m, y), self.mlp_out_norm
        )
        return _add_to_streams(self.mlp_hc, m, x, y, normed)


class StreamMean(Block):
    """The mean of residual streams (GLM-5.3 Flash)."""

    sizes: tuple[int, ...]
    streams: int

    def forward(self, m: Machine[X], x: X) -> X:
        y, *others = m.split(x, *self.sizes)
        for other in others:
            y = m.add(y, other)
        return m.scale(y, 1 / self.streams)


class HyperDecoder(Decoder):
    """A decoder with several residual streams, which begin as copies of the embedding and are
    summed at the end (Hy4).
    """

    collapse: Block  # a StreamSum, a StreamMean
    sizes: tuple[int, ...]  # of the streams

    def forward(self, m: Machine[X], ids: X) -> X:
        assert self.head is not None
        x = self.embed(m, ids)
        x = m.layers(self.layers, m.concat(*[x for _ in self.sizes]))  # (B, T, n·d)
        x = self.collapse(m, m.last_token(x))
        return self.head(m, apply_optional(self.norm, m, x))


def _read_streams(connection: HyperConnection, m: Machine[X], x: X) -> tuple[X, X]:
    """Return what a branch reads, `(B, T, d)`, and the normalized streams."""
    flat = m.to_float32(x)
    normed = connection.norm(m, flat)
    return _sum_streams(connection, m, flat, normed), normed


def _sum_streams(sums: StreamSum, m: Machine[X], flat: X, normed: X) -> X:
    """Return Σ preₙ · xₙ of streams in float32, `(B, T, d)`."""
    return _weighted_sum(sums.sizes, m, flat, sums.pre(m, normed))


def _weighted_sum(sizes: tuple[int, ...], m: Machine[X], flat: X, weights: X) -> X:
    """Return Σ weightsₙ · xₙ of streams in float32, `(B, T, d)`."""
    weighted = m.multiply(m.split_heads(flat, sizes[0]), m.split_heads(weights, 1))  # (B, T, n, d)
    y, *rest = m.split(m.merge_heads(weighted), *sizes)
    for x in rest:
        y = m.add(y, x)
    return m.to_model_dtype(y)


def _add_to_streams(connection: HyperConnection, m: Machine[X], x: X, y: X, normed: X) -> X:
    """Return xₙ + postₙ · y for all streams, `(B, T, n·d)`; with `mix`, x are sums of the
    streams.
    """
    wide, post = m.to_float32(y), connection.post(m, normed)
    branches = [m.multiply(wide, each) for each in m.split(post, *[1 for _ in connection.sizes])]
    if connection.mix is not None:
        weights = m.to_model_dtype(connection.mix(m, normed))
        x = m.merge_heads(m.mix_streams(m.split_heads(x, connection.sizes[0]), weights))
    return m.to_model_dtype(m.add(m.to_float32(x), m.concat(*branches)))


def _gate(d: Expr, n: Expr, eps: float, factor: float = 1.0) -> StreamGate:
    """A gate of n residual streams."""
    bias, scale = weight(n, role="bias", dtype="F32"), weight(1, role="scale", dtype="F32")
    return StreamGate(
        weight=weight(n, n * d, dtype="F32"), bias=bias, scale=scale, factor=factor, eps=eps
    )


def stream_sum(c: Config, d: Expr, n: Expr, eps: float) -> StreamSum:
    """Read a weighted sum of n residual streams."""
    return StreamSum(norm=RMSNorm(eps=eps), pre=_gate(d, n, c.get("hc_eps", 1e-6)), sizes=(d,) * n)


def hyper_connection(
    c: Config,
    d: Expr,
    n: Expr,
    eps: float,
    *,
    factor: float,
    post_eps: float,
    mix: StreamMixer | None = None,
) -> HyperConnection:
    """Read the connection of a branch with n residual streams."""
    return stream_sum(c, d, n, eps).extended(
        HyperConnection, post=_gate(d, n, post_eps, factor), mix=mix
    )


def stream_mixer(c: Config, d: Expr, n: Expr, dtype: str = "F32") -> StreamMixer:
    """Read the mixture of n residual streams; `dtype` is that of published files, if it is not
    that of the other weights.
    """
    return StreamMixer(
        weight=weight(n * n, n * d, dtype=dtype),
        bias=weight(n * n, role="bias", dtype=dtype),
        scale=weight(1, role="scale", dtype=dtype),
        streams=n,
        iterations=c.get("hc_sinkhorn_iters", 20),
        eps=c.get("hc_eps", 1e-6),
    )


def limited(c: Config, expert: MLP) -> LimitedMLP:
    """Return an MLP whose gate and up are clamped before their activation."""
    limit = c.get("swiglu_limit", 10.0)
    if limit < 0.5:
        raise c.error("swiglu_limit", f"should be at least 0.5, not {limit:g}")
    return expert.extended(LimitedMLP, limit=limit, gate_limit=limit / (1 + exp(-limit)))
