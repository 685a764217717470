"""Several residual streams: hyper-connections (arXiv:2409.19606) and gated means; the streams
are joined, `(B, T, n · d)`.
"""

from __future__ import annotations

from typing import ClassVar

from ..blocks import Decoder, Layer, Linear, Norm, apply_optional, residual_branch
from ..machine import Machine, X
from ..tree import Block, Weight


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


class LowRankSum(StreamMean):
    """The mean of gate · y over streams y, each normalized by itself, with gate = sigmoid(up
    silu(down y / n)) (Qwen4-Exp).
    """

    group: ClassVar[str] = "mlp"
    norm: Norm
    down: Linear
    up: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return _gated_mean(self, m, self.norm(m, x))


class LowRankConnection(LowRankSum):
    """A branch reads such a mean of the n streams; what it computes is added to each, times 2
    sigmoid(inject y / n).
    """

    inject: Linear


class LowRankLayer(Layer):
    """A layer on several residual streams, `(B, T, n · d)`, to which features of n-grams may be
    added first (Qwen4-Exp).
    """

    attn_hc: LowRankConnection
    mlp_hc: LowRankConnection
    ngrams: Block | None = None

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = x if self.ngrams is None else m.add(x, self.ngrams(m, x))
        return _inject(self.mlp_hc, m, _inject(self.attn_hc, m, x, self.attn), self.mlp)


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


def _gated_mean(connection: LowRankSum, m: Machine[X], normed: X) -> X:
    """Return the gated mean of normalized streams, `(B, T, d)`."""
    low = m.act(m.scale(connection.down(m, normed), 1 / connection.streams), "silu")
    return StreamMean.forward(
        connection, m, m.multiply(m.act(connection.up(m, low), "sigmoid"), normed)
    )


def _inject(connection: LowRankConnection, m: Machine[X], x: X, branch: Block) -> X:
    """Return the streams with the result of a branch added to each."""
    normed = connection.norm(m, x)
    y = m.dropout(branch(m, _gated_mean(connection, m, normed)))
    # (B, T, n)
    shares = m.scale(
        m.act(m.scale(connection.inject(m, normed), 1 / connection.streams), "sigmoid"), 2.0
    )
    return m.add(
        x,
        m.concat(
            *[m.multiply(y, each) for each in m.split(shares, *[1 for _ in connection.sizes])]
        ),
    )
