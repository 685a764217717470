"""Softmax attention of queries, keys and values: fused kernels where they apply, otherwise in
blocks of queries.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .forward_context import DistanceBias, Mask, MaskBlock
from .selected_keys import SelectedBlocks, SelectedKeys

_MIN_QUERIES_FOR_PADDED_VALUES = 64
"""From this many queries on, values are padded to the length of keys, so that a kernel applies
that does not store the scores."""


class ScoreParams(NamedTuple):
    """How attention scores are computed from q · k."""

    scale: float
    softcap: float | None = None  # scores become cap · tanh(scores / cap)
    sinks: Tensor | None = None  # one logit per head that joins the softmax without a value

    @property
    def sdpa_compatible(self) -> bool:
        """Whether `scaled_dot_product_attention` computes these scores."""
        return self.softcap is None and self.sinks is None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | DistanceBias | SelectedKeys | SelectedBlocks,
    params: ScoreParams,
) -> Tensor:
    """softmax(q kᵀ · scale, masked) v: q `(B, H, T, h)`, k and v `(B, K, S, h)` → `(B, H, T,
    h)`.
    """
    heads = q.shape[0] * q.shape[1]
    if mask.fits_one_block(heads, params.sdpa_compatible):
        return attend_block(q, k, v, mask.full_block, params)
    return torch.cat(
        [
            attend_block(q[:, :, x.queries], k[:, :, x.keys], v[:, :, x.keys], x, params)
            for x in mask.blocks(heads)
        ],
        2,
    )


def attend_block(q: Tensor, k: Tensor, v: Tensor, block: MaskBlock, params: ScoreParams) -> Tensor:
    """`attend` for the queries and keys of one mask block."""
    if params.sdpa_compatible and (block.mask is None or block.mask.dtype in (torch.bool, q.dtype)):
        return _sdpa(q, k, v, block, params.scale)
    probs = attention_probs(q, k, block, params).to(v.dtype).unflatten(1, (k.shape[1], -1))
    return (probs @ v[:, :, None]).flatten(1, 2)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, block: MaskBlock, scale: float) -> Tensor:
    """`attend_block` with torch's kernels; for many queries, values are padded to the key length
    to avoid storing the scores.
    """
    grouped, v_dim = q.shape[1] != k.shape[1], v.shape[-1]
    if (
        grouped
        and q.shape[2] == 1
        and (block.mask is None or block.mask.dim() < 3 or block.mask.shape[-3] == 1)
    ):
        # the heads of a group as its queries: (B, K, H / K, h)
        group = q.unflatten(1, (k.shape[1], -1)).squeeze(3)
        return (
            F.scaled_dot_product_attention(group, k, v, block.mask, scale=scale)
            .flatten(1, 2)
            .unsqueeze(2)
        )
    if q.shape[2] == 1 and q.dtype == torch.bfloat16 and q.device.type == "cpu":
        return _sdpa_in_float32(q, k, v, block, scale)
    if q.shape[2] >= _MIN_QUERIES_FOR_PADDED_VALUES and v_dim < q.shape[-1]:
        v = F.pad(v, (0, q.shape[-1] - v_dim))
    return F.scaled_dot_product_attention(
        q, k, v, block.mask, is_causal=block.causal, scale=scale, enable_gqa=grouped
    )[..., :v_dim]


def _sdpa_in_float32(q: Tensor, k: Tensor, v: Tensor, block: MaskBlock, scale: float) -> Tensor:
    """`_sdpa` of a single query in float32, which takes a CPU a third of the time; row by row,
    so that the copies stay in cache.
    """
    rows = []
    for i in range(len(q)):
        query, keys, values = (x[i : i + 1].float() for x in (q, k, v))
        mask = block.mask
        mask = mask if mask is None or mask.dim() < 4 or len(mask) == 1 else mask[i : i + 1]
        mask = mask if mask is None or mask.dtype == torch.bool else mask.float()
        rows.append(
            F.scaled_dot_product_attention(
                query, keys, values, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        )
    return torch.cat(rows).to(q.dtype)


def attention_probs(q: Tensor, k: Tensor, block: MaskBlock, params: ScoreParams) -> Tensor:
    """Return the attention weights of each query, `(B, H, T, S)`, in float32."""
    scores = (q.unflatten(1, (k.shape[1], -1)) @ k[:, :, None].mT).flatten(
        1, 2
    ).float() * params.scale
    if params.softcap is not None:
        scores = params.softcap * torch.tanh(scores / params.softcap)
    mask = (
        torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        if block.causal
        else block.mask
    )
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    if params.sinks is None:
        return scores.softmax(-1)
    sink = params.sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
