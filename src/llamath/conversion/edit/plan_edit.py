"""`plan_edit`: the tensors of a checkpoint without the dropped layers, or with another
vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

from ...checkpoint.formats.manifest import Tensor
from ...checkpoint.naming.scheme import StoredTensor
from ...checkpoint.quantization.registry import layout_of
from ...core.blocks import Decoder
from ...utils.errors import ConvertError, safe
from .edit_source import EditSource
from .edited_tensor import EditedTensor, Ranges, Slice, copy_tensor, merge_ranges, slice_tensor
from .edited_tree import TreeEdit

Shape = tuple[int, ...]


class _Chosen(NamedTuple):
    """What is kept of an axis, and the number of rows appended to it."""

    ranges: Ranges
    appended: int = 0


class _Names:
    """The new names of stored tensors."""

    def __init__(self, source: EditSource, edit: TreeEdit) -> None:
        self._scheme, self._old_layers = source.scheme, int(source.model.tree.layers.n)
        self._layers = (
            None if edit.layers is None else {old: new for new, old in enumerate(edit.layers)}
        )

    def rename(self, name: str) -> str | None:
        """Return the new name of a tensor; None if its layer is gone. Later layers are those of
        multi-token prediction.
        """
        number, pattern = self._scheme.split_layer(name)
        if number < 0 or self._layers is None:
            return name
        if number < self._old_layers and number not in self._layers:
            return None
        number = (
            self._layers[number]
            if number < self._old_layers
            else number - self._old_layers + len(self._layers)
        )
        return self._scheme.in_layer(pattern, number)


def plan_edit(source: EditSource, edit: TreeEdit, tree: Decoder) -> list[EditedTensor]:
    """Plan the tensors of the edited checkpoint, in the order of the source; `tree` is the
    edited one.
    """
    names, old, new = (
        _Names(source, edit),
        source.expected(source.model.tree),
        source.expected(tree),
    )
    tensors: list[EditedTensor] = []
    for name, x in source.tensors.items():
        packing = source.packings.get(name)
        weight = name if packing is None else packing.weight
        if (target := names.rename(name)) is None:
            continue
        before, after = old.get(weight), new.get(names.rename(weight) or "")
        if before is None or after is None or before.shape == after.shape:
            tensors.append(copy_tensor(x, target))
            continue
        axis = _changed_axis(before, after)
        chosen = _choose(source, edit, before, axis)
        if packing is not None:
            if not _can_cut(x, packing.kind, before, axis, chosen):
                why = (
                    "and rows cannot be appended to it"
                    if chosen.appended
                    else ("in groups that this edit would split")
                )
                raise ConvertError(
                    f"{safe(name)} is packed as {packing.kind}, {why}",
                    hint="edit the unquantized checkpoint",
                )
            if not x.shape or x.shape[0] != before.shape[0]:
                tensors.append(copy_tensor(x, target))  # one scale for the whole matrix
                continue
        tensors.append(
            slice_tensor(target, axis, [Slice(x, chosen.ranges)], chosen.appended, "mean")
        )
    return tensors


def _changed_axis(before: StoredTensor, after: StoredTensor) -> int:
    """Return the axis whose length an edit changes."""
    axes = [i for i, (a, b) in enumerate(zip(before.shape, after.shape, strict=True)) if a != b]
    assert len(axes) == 1, f"an edit changes one axis of {before.name}"
    return axes[0]


def _choose(source: EditSource, edit: TreeEdit, tensor: StoredTensor, axis: int) -> _Chosen:
    """Return what is kept of the axis of a tensor that an edit changes."""
    pattern, size = tensor.parts[0].pattern, int(tensor.shape[axis])
    if pattern.startswith("per_layer."):
        assert edit.layers is not None
        each = size // int(source.model.tree.layers.n)
        return _Chosen(merge_ranges((i * each, (i + 1) * each) for i in edit.layers))
    assert edit.vocab is not None, f"an edit of the vocabulary changes {tensor.name}"
    return _Chosen(((0, min(size, edit.vocab)),), max(0, edit.vocab - size))


def _can_cut(x: Tensor, kind: str, weight: StoredTensor, axis: int, chosen: _Chosen) -> bool:
    """Whether a tensor of a packed weight can be cut along the first axis: rows are packed by
    themselves.
    """
    layout = layout_of(kind)
    return (
        axis == 0
        and not chosen.appended
        and layout is not None
        and layout.by_rows
        and (not x.shape or x.shape[0] in (1, weight.shape[0]))
    )
