"""Layouts undone: the weights that a stored tensor is made of, each as the tree has it. The words are those of `names.scheme`.

What only cuts, turns or reorders whole axes is a view of the stored numbers; the rest is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...checkpoint.naming.rotary_layouts import half_split_order
from ...core.blocks import Attention, LatentAttention, RMSNorm
from ...core.mixers import GatedDeltaNet
from ...core.tree import Block


class LayoutParams(NamedTuple):
    """What the layouts need to know of the block that weights belong to."""

    groups: int = 1  # key/value heads, or what stands for them
    heads: int = 1  # of queries
    size: int = 1  # of a head
    values: int = 1  # value heads to a key head
    channels: int = 1  # of all value heads
    offset: float = 0.0  # of a norm


def layout_params(block: Block, outer: LayoutParams) -> LayoutParams:
    """Those of a block, inside another."""
    if isinstance(block, Attention):
        return outer._replace(groups=block.kv_heads, heads=block.heads, size=block.head_dim)
    if isinstance(block, LatentAttention):
        return outer._replace(groups=block.heads)
    if isinstance(block, GatedDeltaNet):
        n, m = block.key_heads, block.value_heads
        return outer._replace(groups=n, values=m // n, channels=m * block.value_dim)
    return outer._replace(offset=block.offset) if isinstance(block, RMSNorm) else outer


def split_tensor(x: Tensor, shapes: Sequence[tuple[int, ...]], layout: str, known: LayoutParams) -> Sequence[Tensor]:
    """The weights of these shapes that x joins."""
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
    groups = {"heads": known.groups, "each": known.heads, "rows": rows[0]}.get(words[0] if words else "", 1)
    if groups == 1:
        return x.split(rows)
    return [part.flatten(0, 1) for part in x.unflatten(0, (groups, -1)).split([n // groups for n in rows], 1)]


def undo_layout(x: Tensor, layout: str, known: LayoutParams, leaf: str) -> Tensor:
    """One weight with its own rows or numbers as the tree has them."""
    words = layout.split()
    if "rotary" in words:
        x = reorder_rows(x, half_split_order(known.size))
    if "shifted" in words:
        x = x - known.offset
    if "decay" in words:
        x = torch.log(-x)
    if "tiled" in words:
        return untile_heads(x, known, leaf)
    return x


def reorder_rows(x: Tensor, order: Sequence[int]) -> Tensor:
    """The rows of each head in this order."""
    return x.unflatten(0, (-1, len(order)))[:, order].flatten(0, 1)


def untile_heads(x: Tensor, known: LayoutParams, leaf: str) -> Tensor:
    """Value heads key head by key head: rows of x, its columns where it reads what they give, its last channels in the convolution."""
    if leaf == "out.weight":
        return untile_heads(x.mT, known, "").mT
    n = known.channels if leaf.startswith("conv.") else x.shape[0]
    first, own = x[: x.shape[0] - n], x[x.shape[0] - n :]
    own = own.unflatten(0, (known.values, known.groups, -1)).transpose(0, 1).flatten(0, 2)
    return torch.cat((first, own)) if len(first) else own
