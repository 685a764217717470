"""Stored layouts: splits fused tensors into the weights of the tree, restores their row order, sign
and shape, and does the reverse.

Layouts are named as in `scheme`. The functions take arrays of numpy or torch and `ops`, the module
of these arrays. Splits and permutations of whole axes are views of the stored tensor; others copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ...core.tree import Block, Leaf, Stack, Weight, walk
from ...utils.named_tuple import NamedTuple
from .scheme import Scheme, half_split_order, interleaved_order

T = TypeVar("T")
Array = Any
"""A numpy array or a torch tensor."""
Ops = Any
"""The module `numpy` or `torch`."""
Shape = tuple[int, ...]


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
    sizes = {name: getattr(block, field) for name, field in block.layout_sizes.items()}
    return outer._replace(**sizes) if sizes else outer


def layout_params_at(tree: Block, leaf: Leaf) -> LayoutParams:
    """Return the layout parameters of the blocks that contain a weight."""
    block: Block | Stack = tree
    params = LayoutParams()
    for name in leaf.path.split(".")[:-1]:
        inner = block[int(name) - block.first] if isinstance(block, Stack) else block.child(name)
        assert not isinstance(inner, Weight)
        block = inner
        params = layout_params(block, params) if isinstance(block, Block) else params
    return params


def group_by_stored_name(tree: Block, scheme: Scheme) -> dict[str, list[Leaf]]:
    """Return the weights in each stored tensor, in tree order."""
    groups: dict[str, list[Leaf]] = {}
    for leaf in walk(tree):
        if not leaf.weight.tied:
            groups.setdefault(scheme.name_of(leaf), []).append(leaf)
    return groups


def stack_experts(x: Array, layout: str, experts: int) -> Array:
    """Return a stored tensor with an axis of the experts whose matrices are stored below each
    other.
    """
    return x.reshape((experts, -1, *x.shape[1:])) if "below" in layout.split() else x


def split_tensor(
    x: Array, shapes: Sequence[Shape], layout: str, params: LayoutParams
) -> list[Array]:
    """Split a stored tensor into the weights of these shapes."""
    words = layout.split()
    if "unit" in words:
        x = x.squeeze(1)
    for _ in range(words.count("lead")):
        x = x.squeeze(0)
    if "flat" in words:
        x = x.reshape(shapes[0])
    if "flip" in words:
        x = x.swapaxes(-1, -2)
    if "split" in words:
        x = x.reshape((-1, *x.shape[2:]))
    if len(shapes) == 1:
        return [x]
    rows = [shape[0] for shape in shapes]
    groups = count_groups(words, rows, params)
    if groups == 1:
        return _split(x, rows, 0)
    parts = _split(x.reshape((groups, -1, *x.shape[1:])), [n // groups for n in rows], 1)
    return values_last([part.reshape((-1, *x.shape[1:])) for part in parts], words)


def join_tensors(
    parts: Sequence[Array], layout: str, params: LayoutParams, ops: Ops, shape: Shape
) -> Array:
    """Join weights to the stored tensor of this shape: the reverse of `split_tensor`."""
    if not shape:
        return parts[0]
    words = layout.split()
    parts = values_last(parts, words)
    groups = count_groups(words, [x.shape[0] for x in parts], params)
    if len(parts) == 1:
        x = parts[0]
    elif groups == 1:
        x = ops.concatenate(list(parts))
    else:
        x = ops.concatenate([part.reshape((groups, -1, *part.shape[1:])) for part in parts], 1)
        x = x.reshape((-1, *parts[0].shape[1:]))
    if "split" in words:
        heads, rows = (shape[0], shape[2]) if "flip" in words else shape[:2]
        x = x.reshape((heads, rows, *x.shape[1:]))
    if "flip" in words:
        x = x.swapaxes(-1, -2)
    return x.reshape(shape) if {"flat", "lead", "unit"} & set(words) else x


def undo_layout(x: Array, layout: str, params: LayoutParams, leaf: str, ops: Ops) -> Array:
    """Return one weight in the row order and parametrization of the tree."""
    words = layout.split()
    if "rotary" in words:
        x = reorder_rows(x, half_split_order(params.head_dim))
    if "shifted" in words:
        x = x - params.offset
    if "decay" in words:
        x = ops.log(-x)
    return _permute_values(x, params, leaf, ops, tile=False) if "tiled" in words else x


def apply_layout(x: Array, layout: str, params: LayoutParams, leaf: str, ops: Ops) -> Array:
    """Return one weight of the tree in the row order and parametrization of a layout: the
    reverse of `undo_layout`.
    """
    words = layout.split()
    if "tiled" in words:
        x = _permute_values(x, params, leaf, ops, tile=True)
    if "rotary" in words:
        x = reorder_rows(x, interleaved_order(params.head_dim))
    if "shifted" in words:
        x = x + params.offset
    return -ops.exp(x) if "decay" in words else x


def reorder_rows(x: Array, order: Sequence[int]) -> Array:
    """Permute the rows of each head."""
    return x.reshape((-1, len(order), *x.shape[1:]))[:, list(order)].reshape(x.shape)


def count_groups(words: Sequence[str], rows: Sequence[int], params: LayoutParams) -> int:
    """Return the number of groups in each of which all joined weights have rows."""
    return {"heads": params.groups, "each": params.heads, "rows": rows[0], "quarters": 4}.get(
        words[0] if words else "", 1
    )


def values_last(parts: Sequence[T], words: Sequence[str]) -> list[T]:
    """Swap keys and values where they are stored in the other order."""
    q, *kv = parts
    return [q, *reversed(kv)] if "quarters" in words else list(parts)


def _split(x: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Return consecutive views along the first or second axis."""
    views, first = [], 0
    for n in sizes:
        views.append(x[first : first + n] if axis == 0 else x[:, first : first + n])
        first += n
    return views


def _permute_values(x: Array, params: LayoutParams, leaf: str, ops: Ops, tile: bool) -> Array:
    """Order value heads by key head, or `tile` them: rows, columns of the output projection, or
    the last rows of the convolution.
    """
    if leaf == "out.weight":
        return _permute_values(x.swapaxes(-1, -2), params, "", ops, tile).swapaxes(-1, -2)
    n = params.value_channels if leaf.startswith("conv.") else x.shape[0]
    others, values = x[: x.shape[0] - n], x[x.shape[0] - n :]
    outer = (
        (params.groups, params.values_per_key) if tile else (params.values_per_key, params.groups)
    )
    permuted = values.reshape((*outer, -1, *x.shape[1:])).swapaxes(0, 1).reshape(values.shape)
    return ops.concatenate([others, permuted]) if len(others) else permuted
