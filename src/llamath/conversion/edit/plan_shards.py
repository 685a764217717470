"""`plan_shard` and `plan_join`: one rank's tensors of a checkpoint under tensor parallelism, and
the checkpoint of all ranks' tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from ...analysis.storage.shard_tree import WeightCut, weight_cuts
from ...checkpoint.formats.manifest import Tensor
from ...checkpoint.naming.scheme import Scheme, StoredTensor
from ...checkpoint.naming.stored_layouts import (
    LayoutParams,
    count_groups,
    layout_params,
    values_last,
)
from ...checkpoint.quantization.shared.packed_cut import StoredCut
from ...checkpoint.tensor_parallel_shard import TensorParallelShard
from ...checkpoint.tensor_reader import TensorReader
from ...core.blocks import Decoder
from ...core.tree import Block, Stack
from ...utils.errors import ConvertError, safe
from .edited_tensor import (
    EditedTensor,
    Ranges,
    Slice,
    copy_tensor,
    merge_ranges,
    new_tensor,
    slice_tensor,
)

_WHOLE_ROWS = frozenset(("flip", "heads", "rows", "each", "quarters", "unit", "lead", "flat"))
"""Layouts that permute rows and axes, and change no number."""


def stored_cuts(scheme: Scheme, tree: Decoder, shard: TensorParallelShard) -> dict[str, StoredCut]:
    """Return the cuts of stored tensors by name; the tensors of multi-token prediction included.
    Others are whole on every rank.
    """
    cuts: dict[str, StoredCut] = {}
    own = weight_cuts(tree, shard)
    for name, child in tree.children:
        if not isinstance(child, Stack):
            cuts |= dict(_cut_tensors(scheme.tensors_of_field(tree, name), own, tree))
    memo: dict[int, dict[str, StoredCut]] = {}
    first = 0 if scheme.mtp_layer else int(tree.layers.n)
    mtp_names = scheme.replace(layer=scheme.mtp_layer or scheme.layer)
    numbered = (
        *((i, x, scheme) for i, x in enumerate(tree.layers)),
        *((i, x, mtp_names) for i, x in enumerate(tree.mtp or (), first)),
    )
    for i, block, names in numbered:
        if id(block) not in memo:
            inside = {f"layers.{{l}}.{path}": x for path, x in weight_cuts(block, shard).items()}
            memo[id(block)] = dict(
                _cut_tensors(names.tensors_of_block("layers", block), inside, block)
            )
        cuts |= {names.in_layer(name, i): x for name, x in memo[id(block)].items()}
    return cuts


def plan_shard(
    tensors: Mapping[str, Tensor], cuts: Mapping[str, StoredCut], data: Mapping[str, bytes]
) -> list[EditedTensor]:
    """Plan the tensors of one rank; `data` are the bytes of those that are written anew."""
    planned = []
    for name, x in tensors.items():
        cut = cuts.get(name)
        if name in data:
            planned.append(new_tensor(x, data[name]))
        elif cut is None:
            planned.append(copy_tensor(x, name))
        elif cut.ranges:
            viewed = x._replace(shape=cut.view) if cut.view else x
            part = slice_tensor(name, cut.axis, [Slice(viewed, cut.ranges)], cut.appended, "zeros")
            planned.append(_flattened(part, x, cut))
        else:
            raise ConvertError(
                f"{safe(name)} has {x.shape[cut.axis]:,} rows, so this rank would have none",
                hint="use fewer ranks",
            )
    return planned


def _flattened(part: EditedTensor, x: Tensor, cut: StoredCut) -> EditedTensor:
    """Return a part of a tensor that was cut in another shape with as many axes as the tensor
    has.
    """
    return part._replace(shape=(prod(part.shape), *x.shape[1:])) if cut.view else part


def plan_join(
    ranks: Sequence[Mapping[str, Tensor]],
    cuts: Sequence[Mapping[str, StoredCut]],
    reader: TensorReader,
    data: Mapping[str, bytes],
) -> list[EditedTensor]:
    """Plan the tensors of the whole checkpoint; parts that several ranks hold must be equal."""
    planned = []
    for name, x in ranks[0].items():
        if name in data:
            planned.append(new_tensor(x, data[name]))
            continue
        if name not in cuts[0]:
            for other in ranks[1:]:
                _check_equal(name, Slice(x, ()), Slice(other[name], ()), reader)
            planned.append(copy_tensor(x, name))
            continue
        axis = cuts[0][name].axis
        places = sorted(
            (
                Place(start, end, rank, at)
                for rank, rank_cuts in enumerate(cuts)
                for start, end, at in _positions(rank_cuts[name])
            ),
            key=lambda place: (place.start, place.rank),
        )
        slices: list[Slice] = []
        done = 0
        for place in places:
            own, view = ranks[place.rank][name], cuts[place.rank][name].view
            part = Slice(
                own._replace(shape=view) if view else own,
                ((place.at, place.at + place.end - place.start),),
            )
            if place.start < done:  # a copy of what a rank before has
                previous = next(y for y in places if (y.start, y.end) == (place.start, place.end))
                first = part._replace(
                    tensor=ranks[previous.rank][name]._replace(shape=part.tensor.shape),
                    ranges=((previous.at, previous.at + previous.end - previous.start),),
                )
                _check_equal(name, first, part, reader, axis)
                continue
            done = place.end
            if slices and slices[-1].tensor == part.tensor:
                slices[-1] = Slice(part.tensor, merge_ranges((*slices[-1].ranges, *part.ranges)))
            else:
                slices.append(part)
        joined = slice_tensor(name, axis, slices)
        if joined.shape[axis] != cuts[0][name].size:
            raise ConvertError(
                f"{safe(name)}: expected {cuts[0][name].size} rows or columns "
                f"from all ranks, found {joined.shape[axis]}"
            )
        planned.append(_flattened(joined, x, cuts[0][name]))
    return planned


class Place(NamedTuple):
    """A range of the whole tensor's axis, and where a rank has it."""

    start: int
    end: int
    rank: int
    at: int


def _positions(cut: StoredCut) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of the whole axis on a rank, with their positions there."""
    at = 0
    for first, last in cut.ranges:
        yield first, last, at
        at += last - first


def _check_equal(name: str, a: Slice, b: Slice, reader: TensorReader, axis: int = 0) -> None:
    """Raise if two ranks should hold the same numbers and do not."""
    first, second = (
        (copy_tensor(x.tensor, name) if not x.ranges else slice_tensor(name, axis, [x]))
        for x in (a, b)
    )
    same = (first.dtype, first.shape) == (second.dtype, second.shape)
    if not same or any(
        x != y for x, y in zip(first.chunks(reader), second.chunks(reader), strict=True)
    ):
        raise ConvertError(
            f"{safe(name)} should be equal on every rank, and differs",
            hint="these folders do not belong to one checkpoint",
        )


def _cut_tensors(
    stored: Sequence[StoredTensor], cuts: Mapping[str, WeightCut], block: Block
) -> Iterator[tuple[str, StoredCut]]:
    for x in stored:
        if (cut := _cut_tensor(x, cuts, block)) is not None:
            yield x.name, cut


def _cut_tensor(x: StoredTensor, cuts: Mapping[str, WeightCut], block: Block) -> StoredCut | None:
    """Return the cut of a stored tensor, given those of the weights in it."""
    words, is_stack = (
        x.layout.split(),
        bool(x.parts[0].indices) and "{e}" not in x.name and _is_stacked(x),
    )
    parts = [part for part in x.parts if part.indices == x.parts[0].indices]
    own = [cuts.get(part.pattern) for part in parts]
    if all(cut is None for cut in own):
        return None
    if other := set(words) - _WHOLE_ROWS:
        raise ConvertError(
            f"{safe(x.name)} has the layout {', '.join(sorted(other))}, which cannot be cut"
        )
    axes = {cut.axis for cut in own if cut is not None}
    ndim = len(parts[0].weight.shape)
    if len(axes) > 1 or (axes == {1} and len(parts) > 1 and any(cut is None for cut in own)):
        raise ConvertError(f"{safe(x.name)} holds weights that are cut along different axes")
    axis = axes.pop()
    stored_axis = (ndim - 1 - axis if "flip" in words else axis) + is_stack + words.count("lead")
    if axis == 1:
        first = next(cut for cut in own if cut is not None)
        return StoredCut(
            stored_axis + ("unit" in words),
            first.ranges,
            int(parts[0].weight.shape[1]),
            is_output=False,
        )
    rows = [int(part.weight.shape[0]) for part in parts]
    kept = [((0, n),) if cut is None else cut.ranges for cut, n in zip(own, rows, strict=True)]
    rows, kept = values_last(rows, words), values_last(kept, words)
    if "flat" in words:
        each = int(parts[0].weight.size) // rows[0]
        rows, kept = [rows[0] * each], [tuple((a * each, b * each) for a, b in kept[0])]
    groups = count_groups(words, rows, _layout_params(block)) if len(parts) > 1 else 1
    appended = next((cut.appended for cut in own if cut is not None and cut.appended), 0)
    return StoredCut(
        stored_axis, merge_ranges(_interleaved(rows, kept, groups)), sum(rows), appended
    )


def _is_stacked(x: StoredTensor) -> bool:
    """Whether a stored tensor holds the experts of a layer along its first axis."""
    added = ("unit" in x.layout) + x.layout.split().count("lead")
    return (
        len({part.indices for part in x.parts}) > 1
        or len(x.shape) > len(x.parts[0].weight.shape) + added
    )


def _interleaved(
    rows: Sequence[int], kept: Sequence[Ranges], groups: int
) -> Iterator[tuple[int, int]]:
    """Yield the kept ranges of several weights whose rows alternate group by group."""
    at = 0
    for group in range(groups):
        for n, ranges in zip(rows, kept, strict=True):
            first, last = group * (n // groups), (group + 1) * (n // groups)
            for a, b in ranges:
                low, high = max(a, first), min(b, last)
                if low < high:
                    yield at + low - first, at + high - first
            at += last - first


def _layout_params(block: Block) -> LayoutParams:
    """Return the sizes that the layouts of a layer's mixer depend on; those of other weights
    depend on none.
    """
    attn = getattr(block, "attn", None)
    return layout_params(attn, LayoutParams()) if isinstance(attn, Block) else LayoutParams()
