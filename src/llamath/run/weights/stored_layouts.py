"""Undoing stored layouts: splits fused tensors and restores the row order, sign and shape that the tree uses.

Layouts are named as in `checkpoint.naming.scheme`. Splits and permutations of whole axes are views of the stored tensor; others copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...checkpoint.naming.scheme import half_split_order
from ...core.blocks import Attention, LatentAttention, RMSNorm
from ...core.mixers import GatedDeltaNet
from ...core.tree import Block


class LayoutParams(NamedTuple):
    """Sizes of the blocks around a weight that its layout depends on."""

    groups: int = 1  # key/value heads, or the heads that a fused tensor is grouped by
    heads: int = 1  # query heads
    head_dim: int = 1
    values_per_key: int = 1  # value heads per key head
    value_channels: int = 1  # of all value heads
    offset: float = 0.0  # of a norm's weight


def layout_params(block: Block, outer: LayoutParams) -> LayoutParams:
    """Return the parameters inside a block, given those around it."""
    if isinstance(block, Attention):
        return outer._replace(groups=block.kv_heads, heads=block.heads, head_dim=block.head_dim)
    if isinstance(block, LatentAttention):
        return outer._replace(groups=block.heads)
    if isinstance(block, GatedDeltaNet):
        n, m = block.key_heads, block.value_heads
        return outer._replace(groups=n, values_per_key=m // n, value_channels=m * block.value_dim)
    return outer._replace(offset=block.offset) if isinstance(block, RMSNorm) else outer


def split_tensor(x: Tensor, shapes: Sequence[tuple[int, ...]], layout: str, params: LayoutParams) -> Sequence[Tensor]:
    """Split a stored tensor into the weights of these shapes."""
    words = layout.split()
    if "unit" in words:
        x = x.squeeze(1)
    if "flat" in words:
        x = x.reshape(shapes[0])
    if "flip" in words:
        x = x.mT
    if "split" in words:
        x = x.flatten(0, 1)
    rows = [shape[0] for shape in shapes]
    if len(shapes) == 1:
        return [x]
    groups = {"heads": params.groups, "each": params.heads, "rows": rows[0]}.get(words[0] if words else "", 1)
    if groups == 1:
        return x.split(rows)
    return [part.flatten(0, 1) for part in x.unflatten(0, (groups, -1)).split([n // groups for n in rows], 1)]


def undo_layout(x: Tensor, layout: str, params: LayoutParams, leaf: str) -> Tensor:
    """Return one weight in the row order and parametrization of the tree."""
    words = layout.split()
    if "rotary" in words:
        x = reorder_rows(x, half_split_order(params.head_dim))
    if "shifted" in words:
        x = x - params.offset
    if "decay" in words:
        x = torch.log(-x)
    if "tiled" in words:
        return _untile_heads(x, params, leaf)
    return x


def reorder_rows(x: Tensor, order: Sequence[int]) -> Tensor:
    """Permute the rows of each head."""
    return x.unflatten(0, (-1, len(order)))[:, order].flatten(0, 1)


def _untile_heads(x: Tensor, params: LayoutParams, leaf: str) -> Tensor:
    """Order value heads by key head: the rows of x, the columns of the output projection, or the last channels of the convolution."""
    if leaf == "out.weight":
        return _untile_heads(x.mT, params, "").mT
    n = params.value_channels if leaf.startswith("conv.") else x.shape[0]
    others, values = x[: x.shape[0] - n], x[x.shape[0] - n :]
    values = values.unflatten(0, (params.values_per_key, params.groups, -1)).transpose(0, 1).flatten(0, 2)
    return torch.cat((others, values)) if len(others) else values
