"""`CutWeight`: the part of a packed weight that one rank has.

A cut is made where no stored number and no group is split, as vLLM cuts such weights when it loads
them. Everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

from ....utils.errors import ConvertError, safe
from ...formats.manifest import Tensor
from ..packed_tensors import Packing

Read = Callable[[Tensor], bytes]
"""Reads all bytes of a stored tensor."""


class StoredCut(NamedTuple):
    """The part of a stored tensor on one rank."""

    axis: int
    ranges: tuple[tuple[int, int], ...]
    size: int  # of the whole axis
    appended: int = 0
    is_output: bool = True  # the outputs of a matrix are cut, not its inputs
    view: tuple[int, ...] = ()  # the shape as which a flat tensor is cut


Cuts = Mapping[str, StoredCut | bytes]
"""Name → the cut of a tensor of a packed weight, or the bytes of one that is written anew."""


class CutWeight(NamedTuple):
    """A packed weight: its cut, and the tensors that are stored for it."""

    name: str
    kind: str
    cut: StoredCut
    tensors: Mapping[str, Tensor]
    packings: Mapping[str, Packing]
    config: Mapping[str, Any]  # the `quantization_config`
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


def cut_in_order(x: CutWeight, block: Sequence[int] = (), is_shared: bool = False) -> Cuts:
    """Cut tensors that have the axes of the weight, in its order; a last block of rows or columns
    may not be full. `block` are the rows and columns that share a scale; with `is_shared`, one
    scale may be that of all of them.
    """
    cuts = {}
    for name, packing in x.packings.items():
        shape, cut, is_scale = x.tensors[name].shape, x.cut, packing.role == "scale"
        if len(shape) < 2 and is_scale:
            continue
        split = x.refuse("in groups that a cut would split")
        if packing.role in ("index", "meta") or len(shape) != 2 or cut.axis > 1:
            raise split
        if is_shared and is_scale and not block and shape[cut.axis] == 1:
            continue
        unit = block[cut.axis] if block and is_scale else x.length // max(1, shape[cut.axis])
        if not unit or shape[cut.axis] != -(-x.length // unit) or (cut.appended and unit > 1):
            raise split
        if any(a % unit or (b % unit and b < cut.size) for a, b in cut.ranges):
            raise split
        ranges = tuple((a // unit, -(-b // unit)) for a, b in cut.ranges)
        cuts[name] = StoredCut(cut.axis, ranges, -(-cut.size // unit), cut.appended)
    return cuts


def group_size(x: CutWeight) -> int:
    """Return the number of inputs that share a scale by the config; 0 if all of an output do."""
    size = x.config.get("group_size", x.config.get("q_group_size"))
    if type(size) is not int:
        raise x.refuse("and the config does not say its group_size")
    return max(size, 0)


def cut_groups(x: CutWeight) -> dict[str, StoredCut]:
    """Cut scales and zeros by groups of inputs; one for all inputs is whole on every rank."""
    names = [name for name, packing in x.packings.items() if packing.role in ("scale", "zero")]
    size = group_size(x)
    return {
        name: x.scaled_cut(name, 0, size)
        for name in names
        if x.tensors[name].shape[:1] != (1,) or size == x.length
    }
