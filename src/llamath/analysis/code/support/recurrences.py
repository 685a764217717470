"""Mixers with a state, of written files: they read token by token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv1d


def causal_conv(
    x: Tensor,
    cache: Any,
    module: Any,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    dilation: int | None = None,
) -> Tensor:
    """Sum each channel's last inputs times its weights (channels, …): x is (B, T, channels)."""
    reach = weight.shape[1] - 1  # earlier inputs that are read
    if dilation is not None:
        reach = reach * dilation
    before = cache.get(module, x.new_zeros(x.shape[0], reach, x.shape[2]))
    x, weight = torch.cat((before, x), 1), weight.to(x.dtype)
    if bias is not None:
        bias = bias.to(x.dtype)
    cache[module] = x[:, x.shape[1] - reach :].clone()
    if dilation is None:
        return conv1d(x.mT, weight[:, None], bias=bias, groups=x.shape[2]).mT
    return conv1d(x.mT, weight[:, None], bias=bias, dilation=dilation, groups=x.shape[2]).mT


def selective_scan(
    x: Tensor,
    b: Tensor,
    c: Tensor,
    dt: Tensor,
    a_log: Tensor,
    skip: Tensor,
    cache: Any,
    module: Any,
) -> Tensor:
    """In each channel s ← exp(−exp(a_log) dt) s + dt x b; y = s · c + skip x.

    x and dt are (B, T, channels), b and c (B, T, states), s (B, channels, states). It reads token
    by token, which is slow.
    """
    s = cache.get(module, x.new_zeros(x.shape[0], x.shape[2], b.shape[2]).float())
    rate, new, b, c, ys = -a_log.float().exp(), dt * x, b.float(), c.float(), []
    for t in range(x.shape[1]):
        s = torch.exp(rate * dt[:, t, :, None]) * s + new[:, t, :, None] * b[:, t, None]
        ys.append((s * c[:, t, None]).sum(-1))
    cache[module] = s
    return torch.stack(ys, 1) + skip.float() * x


def ssm_scan(
    x: Tensor, b: Tensor, c: Tensor, dt: Tensor, a_log: Tensor, cache: Any, module: Any
) -> Tensor:
    """In each head s ← exp(−exp(a_log) dt) s + dt x ⊗ b; y = s c.

    x is (B, T, heads, size), b and c (B, T, groups, states), dt (B, T, heads). It reads token by
    token, which is slow.
    """
    b, c = (y.repeat_interleave(x.shape[2] // y.shape[2], 2) for y in (b, c))  # of each head
    s = cache.get(module, x.new_zeros(*x[:, 0].shape, b.shape[-1]))  # (B, heads, size, states)
    decay, new, ys = torch.exp(-a_log.float().exp() * dt), dt[..., None] * x, []
    for t in range(x.shape[1]):
        s = decay[:, t, :, None, None] * s + new[:, t, ..., None] * b[:, t, :, None]
        ys.append((s * c[:, t, :, None]).sum(-1))
    cache[module] = s
    return torch.stack(ys, 1)


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, cache: Any, module: Any
) -> Tensor:
    """In each head s ← eᵍ s; s ← s + k ⊗ beta (v − sᵀ k); y = sᵀ q.

    q and k are (B, T, groups, size), v (B, T, heads, width), beta (B, T, heads), g too or
    (B, T, heads, size). It reads token by token, which is slow.
    """
    q, k = (y.repeat_interleave(v.shape[2] // y.shape[2], 2) for y in (q, k))  # of each head
    s = cache.get(module, v.new_zeros(*q[:, 0].shape, v.shape[-1]))  # (B, heads, size, width)
    decay = g.exp()[..., None] if g.dim() == 4 else g.exp()[..., None, None]
    ys = []
    for t in range(v.shape[1]):
        s = decay[:, t] * s
        u = beta[:, t, :, None] * (v[:, t] - (s * k[:, t, :, :, None]).sum(-2))
        s = s + k[:, t, :, :, None] * u[:, :, None]
        ys.append((s * q[:, t, :, :, None]).sum(-2))
    cache[module] = s
    return torch.stack(ys, 1)
