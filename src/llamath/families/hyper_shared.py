"""Readers of hyper-connections and clamped experts: Hy4 and DeepSeek-V4."""

from __future__ import annotations

from math import exp

from ..core.blocks import MLP, LimitedMLP, RMSNorm
from ..core.config import Config
from ..core.constructors import weight
from ..core.expr import Expr
from ..core.extensions.hyper_connections import HyperConnection, StreamGate, StreamMixer, StreamSum


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
