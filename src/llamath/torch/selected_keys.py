"""Attention to the keys, or to the blocks of keys, that an indexer selects: functions that score
them, and classes of masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .forward_context import Mask, MaskBlock

_MAX_SCORES = 1 << 25
"""Scores of an indexer's heads that are computed at once."""


Visible = Callable[[slice], Tensor]
"""Which keys these queries see, `(T, S)` or `(B, T, S)`."""


def select_keys(
    q: Tensor, k: Tensor, weights: Tensor | None, visible: Visible, top_k: int
) -> Tensor:
    """Return the keys with the highest scores: q `(B, T, H, h)`, k `(B, S, h)`, weights `(B, T,
    H)` → `(B, T, min(S, top_k))`.
    """
    kept = min(k.shape[1], top_k)
    return torch.cat(
        [scores.topk(kept, -1).indices for scores in _scores(q, k, weights, visible)], 1
    )


def _scores(q: Tensor, k: Tensor, weights: Tensor | None, visible: Visible) -> Iterator[Tensor]:
    """Yield the scores of consecutive queries, `(B, T, S)`, −∞ for keys that they do not see."""
    keys, scale = k.float().mT[:, None], q.shape[-1] ** -0.5
    size = max(1, _MAX_SCORES // (q.shape[0] * q.shape[2] * max(k.shape[1], 1)))
    for first in range(0, q.shape[1], size):
        at = slice(first, min(first + size, q.shape[1]))
        each = torch.relu(q[:, at].float() @ keys * scale)  # (B, T, H, S)
        scores = (
            each.sum(2) if weights is None else (weights[:, at, None].float() @ each).squeeze(2)
        )
        yield scores.masked_fill(~visible(at), -torch.inf)


class SelectedKeys:
    """A mask that leaves only the selected keys of each query, `(B, T, k)` of `keys` in all; a
    single query reads no others.
    """

    def __init__(self, mask: Mask, selected: Tensor, keys: int) -> None:
        self._mask, self._selected, self._keys = mask, selected, keys
        self._gathers = selected.shape[1] == 1 and selected.shape[2] < keys

    def gather(self, x: Tensor) -> Tensor:
        """Return the selected keys or values of a single query, `(B, k, K, h)`; those of several
        queries are all that there are.
        """
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
        return torch.zeros(
            *selected.shape[:2], self._keys, dtype=torch.bool, device=selected.device
        ).scatter(2, selected, True)


class Windows(NamedTuple):
    """The windows of `ratio` tokens that end in a pass: in each row `(B,)` the number of the
    first, and their number in all; on the CPU.
    """

    ratio: int
    padding: Tensor
    first: Tensor
    end: Tensor

    @property
    def width(self) -> int:
        """The most windows that end in this pass in any row."""
        return int((self.end - self.first).max())

    @property
    def numbers(self) -> Tensor:
        """The numbers of the windows, `(B, W)`."""
        return self.first[:, None] + torch.arange(self.width)


def _tokens_of_windows(rows: int, windows: Windows, start: int) -> Tensor:
    """Return the index of each token of the windows, `(B, W, ratio)`, counted from `start`."""
    token = windows.numbers[..., None] * windows.ratio + torch.arange(windows.ratio)
    return (windows.padding[:, None, None] + token - start).expand(rows, -1, -1)


def mean_of_windows(kv: Tensor, windows: Windows, start: int) -> Tensor:
    """Return the mean of the tokens of each window, `(B, W, 1, h)`; `start` is the index of the
    first token of kv.
    """
    at = _tokens_of_windows(len(kv), windows, start).clamp(0, max(kv.shape[1] - 1, 0))
    return kv[torch.arange(len(kv))[:, None, None], at].float().mean(2, keepdim=True).to(kv.dtype)


def compress_windows(
    kv: Tensor, gate: Tensor, bias: Tensor | None, windows: Windows, start: int, overlap: bool
) -> Tensor:
    """Return a weighted mean of the tokens of each window, `(B, W, 1, h)`; `start` is the index
    of the first token of kv and gate.
    """
    rows, at = torch.arange(len(kv))[:, None, None], _tokens_of_windows(len(kv), windows, start)
    last = max(kv.shape[1] - 1, 0)
    values, weights = (x[rows, at.clamp(0, last)] for x in (kv, gate))  # (B, W, ratio, c)
    weights = weights if bias is None else weights + bias
    if overlap:
        h, before = kv.shape[-1] // 2, (at - windows.ratio).clamp(0, last)
        none = (windows.numbers == 0)[..., None, None].to(kv.device)
        gates = gate[rows, before] if bias is None else gate[rows, before] + bias
        earlier = (
            kv[rows, before][..., :h].masked_fill(none, 0.0),
            gates[..., :h].masked_fill(none, -torch.inf),
        )
        values, weights = (
            torch.cat((earlier[0], values[..., h:]), 2),
            torch.cat((earlier[1], weights[..., h:]), 2),
        )
    return (values * weights.softmax(2, dtype=torch.float32).to(values.dtype)).sum(2, keepdim=True)


class BlockNumbers(NamedTuple):
    """Numbers of the blocks of keys `(S,)` and of queries `(T,)`, with a dimension of rows
    before if they are padded, and what is kept.
    """

    of_keys: Tensor
    of_queries: Tensor
    total: int  # blocks of the keys
    top_blocks: int
    local_blocks: int


def select_blocks(q: Tensor, k: Tensor, mask: Mask, blocks: BlockNumbers) -> Tensor:
    """Return the blocks with the highest scores, and the nearest: q `(B, T, H, h)`, k `(B, S,
    h)` → `(B, T, H, kept)`, −1 for none.
    """
    rows, heads, count = q.shape[0], q.shape[2], blocks.total
    keys, size = k.float().mT[:, None], max(1, _MAX_SCORES // (rows * heads * k.shape[1]))
    of_keys = blocks.of_keys.expand(rows, -1)
    parts = []
    for first in range(0, q.shape[1], size):
        at = slice(first, min(first + size, q.shape[1]))
        visible = mask.visible(at)
        each = (q[:, at].transpose(1, 2).float() @ keys).masked_fill(
            ~visible.reshape(-1, 1, *visible.shape[-2:]), -torch.inf
        )  # (B, H, T, S)
        index = of_keys[:, None, None].expand_as(each)
        best = each.new_full((*each.shape[:3], count), -torch.inf).scatter_reduce(
            3, index, each, "amax"
        )
        nearest = blocks.of_queries[..., at, None] - torch.arange(
            blocks.local_blocks, device=q.device
        )
        nearest = nearest.clamp(min=0).expand(rows, -1, -1)[:, None].expand(-1, heads, -1, -1)
        top = best.scatter(3, nearest, torch.inf).topk(min(blocks.top_blocks, count), -1)
        parts.append(top.indices.masked_fill(top.values == -torch.inf, -1).transpose(1, 2))
    return torch.cat(parts, 1)


class SelectedBlocks:
    """A mask that leaves only the selected blocks of each query and each group of heads, `(B, T,
    G, k)`.
    """

    def __init__(
        self, mask: Mask, selected: Tensor, of_keys: Tensor, count: int, heads: int
    ) -> None:
        self._mask, self._selected, self._of_keys, self._count, self._heads = (
            mask,
            selected,
            of_keys,
            count,
            heads,
        )

    def fits_one_block(self, heads: int, fused: bool) -> bool:  # noqa: ARG002
        """Whether all queries are processed at once."""
        return self._mask.fits_one_block(heads, fused=False)

    @property
    def full_block(self) -> MaskBlock:
        """All queries and all keys as one block."""
        visible = self._mask.visible(slice(None))
        return MaskBlock(
            mask=visible.reshape(-1, 1, *visible.shape[-2:]) & self._chosen(slice(None))
        )

    def blocks(self, heads: int) -> Iterator[MaskBlock]:
        """Consecutive ranges of queries, each with only the keys that they need."""
        for x in self._mask.blocks(heads):
            chosen = self._chosen(x.queries)[..., x.keys]
            yield x._replace(mask=chosen if x.mask is None else x.mask & chosen)

    def _chosen(self, queries: slice) -> Tensor:
        """Return which keys are in selected blocks, `(B, H, T, S)`."""
        selected = self._selected[:, queries].transpose(1, 2)  # (B, G, T, k)
        table = torch.zeros(
            *selected.shape[:3], self._count + 1, dtype=torch.bool, device=selected.device
        )
        table = table.scatter(3, selected.masked_fill(selected < 0, self._count), True)
        index = self._of_keys.expand(len(selected), -1)[:, None, None].expand(
            *selected.shape[:3], -1
        )
        return table.gather(3, index).repeat_interleave(self._heads // selected.shape[1], 1)
