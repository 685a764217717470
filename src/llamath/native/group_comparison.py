"""Compares groups of quantized weights with other numbers by one pass of the native library, for
`same`.
"""

from __future__ import annotations

import ctypes

from ..analysis.check.same.chunk_comparison import Array, CompareGroups, GroupDifferences
from ..checkpoint.formats.number_arrays import require_numpy
from .library import TYPES, GroupComparison, Library, find_library

_LANES = 16
"""The number of weights of a group is a multiple of this."""


def find_group_comparer() -> CompareGroups | None:
    """Return the function of the native library, if that has been compiled."""
    library = find_library()
    if library is None:
        return None

    def compare(
        levels: Array,
        scales: Array,
        minimums: Array | None,
        radius: Array,
        numbers: Array,
        dtype: str,
    ) -> GroupDifferences | None:
        return _compare(library, levels, scales, minimums, radius, numbers, dtype)

    return compare


def _compare(
    library: Library,
    levels: Array,
    scales: Array,
    minimums: Array | None,
    radius: Array,
    numbers: Array,
    dtype: str,
) -> GroupDifferences | None:
    np, size = require_numpy(), levels.shape[-1]
    if (
        levels.dtype.itemsize != 1
        or size % _LANES
        or levels.size >= 2**31
        or numbers.dtype.itemsize != {"F32": 4, "F16": 2, "BF16": 2}.get(dtype)
    ):
        return None
    if levels.shape[1] > 1 or levels.strides[2] != 1:
        levels = np.ascontiguousarray(levels)
    groups = levels.shape[0] * levels.shape[1]
    scales, minimums = (
        x if x is None else np.ascontiguousarray(x, "f4") for x in (scales, minimums)
    )
    if {scales.size, radius.size, scales.size if minimums is None else minimums.size} != {
        groups
    } or numbers.size != groups * size:
        return None
    numbers = np.ascontiguousarray(numbers, "f4" if dtype == "F32" else None)
    reciprocals, beyond = np.ascontiguousarray(1 / radius, "f4"), np.empty(groups * size, "i4")
    found = GroupComparison(
        levels=levels.ctypes.data,
        level_stride=levels.strides[0] if levels.shape[1] == 1 else size,
        scales=scales.ctypes.data,
        minimums=None if minimums is None else minimums.ctypes.data,
        reciprocals=reciprocals.ctypes.data,
        numbers=numbers.ctypes.data,
        groups=groups,
        size=size,
        is_signed=levels.dtype.kind == "i",
        type=TYPES[dtype],
        beyond=beyond.ctypes.data,
    )
    if library.compare_groups(ctypes.byref(found)):
        return None
    return GroupDifferences(
        num_differing=found.num_differing,
        first=found.first_differing,
        square_difference=found.square_difference,
        square_value=found.square_value,
        square_number=found.square_number,
        largest=found.largest_difference,
        largest_share=found.largest_share,
        beyond=beyond[: found.num_beyond].astype("i8"),
    )
