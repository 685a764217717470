"""Attention to the keys that an indexer selects: `select_keys` scores them, `SelectedKeys` is the mask."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .forward_context import Mask, MaskBlock

_MAX_SCORES = 1 << 25
"""Scores of an indexer's heads that are computed at once."""


def select_keys(q: Tensor, k: Tensor, weights: Tensor, mask: Mask, top_k: int) -> Tensor:
    """Return the keys with the highest scores: q `(B, T, H, h)`, k `(B, S, h)`, weights `(B, T, H)` → `(B, T, min(S, top_k))`."""
    keys, kept, scale = k.float().mT[:, None], min(k.shape[1], top_k), q.shape[-1] ** -0.5
    size = max(1, _MAX_SCORES // (q.shape[0] * q.shape[2] * k.shape[1]))
    parts = []
    for first in range(0, q.shape[1], size):
        at = slice(first, min(first + size, q.shape[1]))
        each = torch.relu(q[:, at].float() @ keys * scale)  # (B, T, H, S)
        scores = (weights[:, at, None].float() @ each).squeeze(2)
        parts.append(scores.masked_fill(~mask.visible(at), -torch.inf).topk(kept, -1).indices)
    return torch.cat(parts, 1)


class SelectedKeys:
    """A mask that leaves only the selected keys of each query, `(B, T, k)` of `keys` in all; a single query reads no others."""

    def __init__(self, mask: Mask, selected: Tensor, keys: int) -> None:
        self._mask, self._selected, self._keys = mask, selected, keys
        self._gathers = selected.shape[1] == 1 and selected.shape[2] < keys

    def gather(self, x: Tensor) -> Tensor:
        """Return the selected keys or values of a single query, `(B, k, K, h)`; those of several queries are all that there are."""
        return x.take_along_dim(self._selected[:, 0, :, None, None], 1) if self._gathers else x

    def fits_one_block(self, heads: int, fused: bool) -> bool:  # noqa: ARG002
        """Whether all queries are processed at once."""
        return self._mask.fits_one_block(heads, fused=False)

    @property
    def full_block(self) -> MaskBlock:
        """All queries and all keys as one block."""
        visible = self._mask.visible(slice(None))
        visible = visible.expand(len(self._selected), *visible.shape[-2:])
        if self._gathers:
            return MaskBlock(mask=visible.gather(2, self._selected)[:, None])
        return MaskBlock(mask=(visible & self._chosen(slice(None)))[:, None])

    def blocks(self, heads: int) -> Iterator[MaskBlock]:
        """Consecutive ranges of queries, each with only the keys that they need."""
        for x in self._mask.blocks(heads):
            chosen = self._chosen(x.queries)[:, None, :, x.keys]
            yield x._replace(mask=chosen if x.mask is None else x.mask & chosen)

    def _chosen(self, queries: slice) -> Tensor:
        """Return which keys are selected, `(B, T, S)`."""
        selected = self._selected[:, queries]
        return torch.zeros(*selected.shape[:2], self._keys, dtype=torch.bool, device=selected.device).scatter(2, selected, True)
