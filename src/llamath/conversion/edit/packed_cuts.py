"""`packed_cuts`: the parts of the tensors of packed weights on one rank: values, scales, zero
points, and what describes them.

A cut is made where no stored number and no group is split, as vLLM cuts such weights when it loads
them: AWQ's and GPTQ's tensors have the inputs first; with GPTQ's `desc_act`, inputs of one group
are on several ranks, which all have its scales; gpt-oss's experts are stacked; bitsandbytes' 4 bits
are blocks of the flat matrix. Everything else is refused by name.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping
from math import gcd
from typing import Any, NamedTuple

from ...checkpoint.formats.manifest import Tensor
from ...checkpoint.quantization.packed_tensors import Packing
from ...utils.errors import ConvertError, safe
from .stored_cut import StoredCut

_IN_ORDER = frozenset(("fp8", "int8", "mlx", "nvfp4"))
"""Packings whose tensors have the axes of the weight, in its order: outputs, inputs."""
_MAX_STATE_BYTES = 1 << 16
_STATE = "quant_state.bitsandbytes__"
Read = Callable[[Tensor], bytes]
"""Reads all bytes of a stored tensor."""


class PackedCuts(NamedTuple):
    """The cuts of the tensors of packed weights, and the bytes of those that are written anew,
    by name.
    """

    cuts: dict[str, StoredCut]
    data: dict[str, bytes]


class _Weight(NamedTuple):
    """A packed weight: its cut, and the tensors that are stored for it."""

    name: str
    kind: str
    cut: StoredCut
    tensors: Mapping[str, Tensor]
    packings: Mapping[str, Packing]
    recipe: Mapping[str, Any]
    read: Read
    is_rank: bool  # the tensors are those of one rank

    @property
    def values(self) -> str:
        """The name of the values."""
        return next(x for x, packing in self.packings.items() if packing.role == "values")

    @property
    def length(self) -> int:
        """The number of outputs or inputs that the tensors have along the axis of the cut."""
        return (
            self.cut.size
            if not self.is_rank
            else sum(b - a for a, b in self.cut.ranges) + self.cut.appended
        )

    def find(self, end: str) -> str:
        """Return the name of the tensor with this end, or an empty string."""
        return next((x for x in self.packings if x.endswith(end)), "")

    def require(self, end: str) -> str:
        """Return the name of the tensor with this end."""
        if not (name := self.find(end)):
            raise self.refuse(f"and its tensor {end.removeprefix('.')} is missing")
        return name

    def refuse(self, why: str) -> ConvertError:
        """Return the error for a weight that cannot be cut."""
        hint = "cut the unquantized checkpoint, or use fewer ranks"
        return ConvertError(
            f"{safe(self.values)} is packed as {safe(self.kind, 40)}, {why}", hint=hint
        )

    def scaled_cut(self, name: str, axis: int, group: int = 0, per: int = 1) -> StoredCut:
        """Return the cut of a tensor along an axis with as many numbers for each output or input as
        its shape says.

        `group` is the number of outputs or inputs that one number has to stand for, if that is
        known; `per` multiplies both.
        """
        shape = self.tensors[name].shape
        if axis >= len(shape):
            raise self.refuse(
                f"and {safe(name)} has the shape {list(shape)}, without the axis to cut"
            )
        n, length = shape[axis], self.length * per
        common = gcd(n, length)
        step, numbers = (length // common, n // common) if common else (0, 0)
        if not step or (group and (step, numbers) != (group, 1)) or self.cut.appended:
            raise self.refuse(
                f"and {safe(name)} has {n:,} numbers for {length:,} values: its "
                "last group is not full"
            )
        if any(a * per % step or b * per % step for a, b in self.cut.ranges):
            where = next(x for span in self.cut.ranges for x in span if x * per % step)
            raise self.refuse(
                f"in groups that a cut would split: {safe(name)} has one for {step:,} values, "
                f"and the cut is at {where * per:,}"
            )
        ranges = tuple(
            (a * per // step * numbers, b * per // step * numbers) for a, b in self.cut.ranges
        )
        return StoredCut(axis, ranges, self.cut.size * per // step * numbers)


def packed_cuts(
    cuts: Mapping[str, StoredCut],
    tensors: Mapping[str, Tensor],
    packings: Mapping[str, Packing],
    recipe: Mapping[str, Any] | None,
    read: Read,
    *,
    is_rank: bool = False,
) -> PackedCuts:
    """Return the cuts of the tensors of packed weights; `is_rank` says that the tensors are
    those of one rank, to be joined.
    """
    weights: dict[str, dict[str, Packing]] = {}
    for name, packing in packings.items():
        if packing.weight in cuts:
            weights.setdefault(packing.weight, {})[name] = packing
    found = PackedCuts({}, {})
    for name, own in weights.items():
        kind = next((x.kind for x in own.values() if x.role == "values"), "")
        cut = _CUTTERS.get(kind, _cut_in_order if kind in _IN_ORDER else None)
        weight = _Weight(name, kind, cuts[name], tensors, own, recipe or {}, read, is_rank)
        if not kind or cut is None:
            raise weight.refuse(
                "whose layout is not cut: it has no axis of outputs and of "
                "inputs that is known here"
            )
        new = cut(weight)
        found.cuts.update(new.cuts)
        found.data.update(new.data)
    return found


def _cut_in_order(x: _Weight) -> PackedCuts:
    """Cut tensors that have the axes of the weight; a last block of rows or columns may not be
    full.
    """
    cuts = {}
    block = _scale_block(x.recipe)
    for name, packing in x.packings.items():
        shape, cut = x.tensors[name].shape, x.cut
        if len(shape) < 2 and packing.role == "scale":
            continue
        split = x.refuse("in groups that a cut would split")
        if packing.role in ("index", "meta") or len(shape) != 2 or cut.axis > 1:
            raise split
        is_block_scale = block is not None and packing.kind == "fp8" and packing.role == "scale"
        if (
            packing.kind in ("fp8", "int8")
            and packing.role == "scale"
            and not is_block_scale
            and shape[cut.axis] == 1
        ):
            continue  # one scale for all rows or columns
        unit = (
            block[cut.axis]
            if block is not None and is_block_scale
            else x.length // max(1, shape[cut.axis])
        )
        if not unit or shape[cut.axis] != -(-x.length // unit) or (cut.appended and unit > 1):
            raise split
        if any(a % unit or (b % unit and b < cut.size) for a, b in cut.ranges):
            raise split
        ranges = tuple((a // unit, -(-b // unit)) for a, b in cut.ranges)
        cuts[name] = StoredCut(cut.axis, ranges, -(-cut.size // unit), cut.appended)
    return PackedCuts(cuts, {})


def _scale_block(recipe: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the rows and columns that share a scale, if a recipe says so."""
    groups = recipe.get("config_groups")
    weights = (
        [x.get("weights") for x in groups.values() if isinstance(x, Mapping)]
        if isinstance(groups, Mapping)
        else []
    )
    blocks = [
        recipe.get("weight_block_size"),
        *(x.get("block_structure") for x in weights if isinstance(x, Mapping)),
    ]
    block = next((x for x in blocks if x is not None), None)
    is_valid = (
        isinstance(block, list) and len(block) == 2 and all(type(x) is int and x > 0 for x in block)
    )
    return (block[0], block[1]) if isinstance(block, list) and is_valid else None


def _group_size(x: _Weight) -> int:
    """Return the number of inputs that share a scale by the config; 0 if all of an output do."""
    size = x.recipe.get("group_size", x.recipe.get("q_group_size"))
    if type(size) is not int:
        raise x.refuse("and the config does not say its group_size")
    return max(size, 0)


def _cut_awq(x: _Weight) -> PackedCuts:
    shape, of_weight = x.tensors[x.values].shape, x.packings[x.values].shape
    if of_weight is None or x.find("scaled_zeros") or shape != (of_weight[-1], of_weight[-2] // 8):
        raise x.refuse("in the layout GEMV, which has no tensors with inputs first")
    if x.cut.is_output:
        return PackedCuts({name: x.scaled_cut(name, 1) for name in x.packings}, {})
    return PackedCuts({x.values: x.scaled_cut(x.values, 0), **_cut_groups(x)}, {})


def _cut_groups(x: _Weight) -> dict[str, StoredCut]:
    """Cut scales and zero points by groups of inputs; one scale for all inputs is whole on every
    rank.
    """
    names = [name for name, packing in x.packings.items() if packing.role in ("scale", "zero")]
    size = _group_size(x)
    return {
        name: x.scaled_cut(name, 0, size)
        for name in names
        if x.tensors[name].shape[:1] != (1,) or size == x.length
    }


def _cut_gptq(x: _Weight) -> PackedCuts:
    index = x.find(".g_idx")
    if not x.values.endswith(".qweight") or x.recipe.get("checkpoint_format") == "marlin":
        raise x.refuse("in Marlin's tiles, whose rows and columns are interleaved")
    if x.cut.is_output:
        return PackedCuts({name: x.scaled_cut(name, 1) for name in x.packings if name != index}, {})
    values = {x.values: x.scaled_cut(x.values, 0)}
    if not index:
        return PackedCuts({**values, **_cut_groups(x)}, {})
    if _is_shuffled(x, index):  # groups have inputs on several ranks, which all have their scales
        return PackedCuts({**values, index: x.scaled_cut(index, 0)}, {})
    group, ranges = _group_size(x) or x.length, x.cut.ranges
    count = x.cut.size if x.is_rank else sum(b - a for a, b in ranges)
    group = group if _group_size(x) else count
    return PackedCuts(
        {**values, **_cut_groups(x)},
        {index: array("i", [i // group for i in range(count)]).tobytes()},
    )


def _is_shuffled(x: _Weight, index: str) -> bool:
    """Whether the groups of the inputs are in another order than the inputs, as with `desc_act`."""
    groups, size = (x.tensors[x.require(".scales")].shape or (1,))[0], _group_size(x)
    if x.tensors[index].dtype != "I32":
        raise x.refuse(f"and its g_idx has the dtype {x.tensors[index].dtype}, not I32")
    if groups == 1:
        return False
    if x.is_rank:
        return groups * size != x.length
    numbers = array("i")
    numbers.frombytes(x.read(x.tensors[index]))
    if len(numbers) != x.length:
        raise x.refuse(f"and its g_idx has {len(numbers):,} numbers for {x.length:,} inputs")
    return any(n != i // size for i, n in enumerate(numbers)) if size else True


def _cut_mxfp4(x: _Weight) -> PackedCuts:
    of_weight = x.packings[x.values].shape
    axis = (len(of_weight) - 2 if of_weight is not None else 0) + (not x.cut.is_output)
    return PackedCuts(
        {
            name: x.scaled_cut(name, axis)
            for name, packing in x.packings.items()
            if packing.role in ("values", "scale")
        },
        {},
    )


def _cut_bnb_int8(x: _Weight) -> PackedCuts:
    cuts = {x.values: x.scaled_cut(x.values, 0 if x.cut.is_output else 1)}
    if x.cut.is_output:
        cuts |= {
            name: x.scaled_cut(name, 0)
            for name, packing in x.packings.items()
            if packing.role == "scale"
        }
    return PackedCuts(cuts, {})


def _cut_bnb_4bit(x: _Weight) -> PackedCuts:
    """Cut blocks of the flat matrix: rows are ranges of them, and columns are columns of blocks
    if a row is whole blocks.
    """
    name = next((y for y in x.packings if _STATE in y), "")
    state = _bnb_state(x, name)
    out, into = state["shape"]
    block, nested = state.get("blocksize"), x.find(".nested_absmax")
    if type(block) is not int or block < 1 or (out if x.cut.is_output else into) != x.length:
        raise x.refuse(
            f"and its quantization state does not describe {x.length:,} rows or columns in blocks"
        )
    absmax, of_nested = x.require(".absmax"), state.get("nested_blocksize")
    if x.cut.is_output:
        names = [x.values, absmax, *([nested] if nested else [])]
        if nested and (type(of_nested) is not int or of_nested < 1):
            raise x.refuse("and its quantization state has no nested_blocksize")
        groups = {absmax: block, nested: block * (of_nested or 0)}
        cuts = {y: x.scaled_cut(y, 0, groups.get(y, 0), per=into) for y in names}
    elif nested:
        raise x.refuse(
            "with double quantization, whose blocks of scales go across rows, and "
            "cannot be cut by columns"
        )
    else:
        if into % block:
            raise x.refuse(f"in blocks of {block} values that go across rows of {into:,}")
        cuts = {}
        for y, of_block in ((x.values, 0), (absmax, block)):
            n = (x.tensors[y].shape or (1,))[0]
            view = x._replace(
                tensors={**x.tensors, y: x.tensors[y]._replace(shape=(out, n // out))}
            )
            cuts[y] = view.scaled_cut(y, 1, of_block)._replace(view=(out, n // out))
    length = x.cut.size if x.is_rank else sum(b - a for a, b in x.cut.ranges)
    shape = [length, into] if x.cut.is_output else [out, length]
    return PackedCuts(cuts, {name: json.dumps(state | {"shape": shape}).encode()})


def _bnb_state(x: _Weight, name: str) -> dict[str, Any]:
    tensor = x.tensors.get(name)
    try:
        state = (
            json.loads(x.read(tensor))
            if tensor is not None and tensor.bytes <= _MAX_STATE_BYTES
            else None
        )
    except (ValueError, RecursionError):
        state = None
    shape = state.get("shape") if isinstance(state, dict) else None
    if (
        not isinstance(state, dict)
        or not isinstance(shape, list)
        or [type(n) for n in shape] != [int, int]
        or min(shape) < 1
    ):
        raise x.refuse("and its quantization state is no JSON with the shape of a matrix")
    return state


_CUTTERS: Mapping[str, Callable[[_Weight], PackedCuts]] = {
    "awq": _cut_awq,
    "gptq": _cut_gptq,
    "mxfp4": _cut_mxfp4,
    "bnb-int8": _cut_bnb_int8,
    "bnb-nf4": _cut_bnb_4bit,
    "bnb-fp4": _cut_bnb_4bit,
}
"""Kinds with layouts of their own → the function that cuts them."""
