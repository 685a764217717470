"""`packed_cuts`: the parts of the tensors of packed weights on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...checkpoint.formats.manifest import Tensor
from ...checkpoint.quantization.packed_tensors import Packing
from ...checkpoint.quantization.registry import layout_of
from ...checkpoint.quantization.shared.packed_cut import CutWeight, Read, StoredCut


class PackedCuts(NamedTuple):
    """The cuts of the tensors of packed weights, and the bytes of those that are written anew,
    by name.
    """

    cuts: dict[str, StoredCut]
    data: dict[str, bytes]


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
        layout = layout_of(kind)
        weight = CutWeight(name, kind, cuts[name], tensors, own, recipe or {}, read, is_rank)
        if layout is None or layout.cut is None:
            raise weight.refuse(
                "whose layout is not cut: it has no axis of outputs and of "
                "inputs that is known here"
            )
        for tensor, new in layout.cut(weight).items():
            if isinstance(new, StoredCut):
                found.cuts[tensor] = new
            else:
                found.data[tensor] = new
    return found
