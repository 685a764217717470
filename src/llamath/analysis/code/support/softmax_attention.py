"""Attention of written files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    *,
    scale: float | None = None,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    selected: Tensor | None = None,
    grouped: bool = True,
) -> Tensor:
    """Each query attends to the keys up to its own.

    q is (B, T, query heads, size), k and v (B, S, key heads, size).
    """
    i, j = pos[:, None], torch.arange(k.shape[1], device=pos.device)  # query and key positions
    mask = j <= i  # (T, S)
    if window is not None:
        mask = mask & (i - j < window)
    if chunk is not None:
        mask = mask & (i // chunk == j // chunk)
    if selected is not None:
        chosen = torch.zeros(*selected.shape[:2], len(j), device=j.device)
        mask = mask & chosen.scatter(2, selected, 1).bool()[:, None]  # (B, 1, T, S)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # heads first
    if softcap is None and slopes is None and sinks is None:
        if grouped:
            y = scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)
        else:
            y = scaled_dot_product_attention(q, k, v, mask, scale=scale)
    else:
        if grouped:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        scores = (q @ k.mT).float() * scale  # (B, heads, T, S)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if slopes is not None:
            scores = scores + slopes.to(j.device)[:, None, None] * j  # ALiBi: near keys count more
        scores = scores.masked_fill(~mask, -torch.inf)
        if sinks is not None:  # a logit without a value
            sink = sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
            weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        y = weights.type_as(v) @ v
    return y.transpose(1, 2)  # (B, T, query heads, size)


def select_keys(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    pos: Tensor,
    top_k: int,
    *,
    cache: Any | None = None,
) -> Tensor:
    """Choose the top_k keys with the largest Σ weight · relu(q · k / √size) for each query.

    q is (B, T, heads, size), k (B, S, 1, size), weights (B, T, heads), and Σ is over heads.
    """
    mask = torch.arange(k.shape[1], device=pos.device) <= pos[:, None]  # (T, S)
    each = torch.relu(q.float() @ k.float().flatten(2).mT[:, None] * q.shape[-1] ** -0.5)
    scores = (weights[:, :, None].float() @ each).squeeze(2)  # (B, T, S)
    scores = scores.masked_fill(~mask, -torch.inf)
    chosen = scores.topk(min(top_k, k.shape[1]), -1).indices
    if cache is not None:
        cache.chosen = chosen  # for layers that choose none
    return chosen
