"""Dequantization: the values of packed weights as float32, from their stored tensors, for every
kind of packing whose layout is known.

A layout opens the stored tensors of one matrix [out, in] and returns a function from a range of
outputs to their values, so that a matrix of any size is dequantized in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from ...utils.errors import LlamathError, safe
from ..formats.number_arrays import StoredArray, as_array, require_numpy
from .packed_tensors import PackedWeight, Shape
from .registry import layout_of, producer_of_kind, producer_of_method
from .shared.half_steps import MOVED_ERRORS, WholeNumbers
from .shared.stored_matrix import Rows, StoredMatrix

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from .shared.stored_matrix import Array, Arrays

    Values = NDArray[float32]

_CHUNK_ELEMENTS = 1 << 20
"""Elements dequantized at once; a multiple of rows."""
_ROW_MULTIPLE = 64
"""Outputs are read in multiples of this many, so that no packed word is cut."""


def dequantize(
    x: PackedWeight, read: Callable[[str], StoredArray], config: Mapping[str, Any] | None = None
) -> Any:
    """Return a packed weight as float32, of its shape; `config` is the `quantization_config`."""
    np = require_numpy()
    shape, pieces = iter_dequantized(x, read, config)
    result = np.empty((prod(shape[:-1]), shape[-1]), np.float32)
    at = 0
    for piece in pieces:
        result[at : at + len(piece)] = piece
        at += len(piece)
    return result.reshape(shape)


def iter_dequantized(
    x: PackedWeight, read: Callable[[str], StoredArray], config: Mapping[str, Any] | None = None
) -> tuple[Shape, Iterator[Values]]:
    """Return the shape (…, out, in) of a packed weight, and its rows in order, some at a time,
    as float32 [n, in].
    """
    opened = open_packed(x, read, config)
    out, into = opened.shape[-2:]
    step = max(_ROW_MULTIPLE, _CHUNK_ELEMENTS // max(into, 1) // _ROW_MULTIPLE * _ROW_MULTIPLE)
    spans = ((i, first) for i in range(prod(opened.shape[:-2])) for first in range(0, out, step))
    return opened.shape, (opened.rows(i, first, min(first + step, out)) for i, first in spans)


def open_packed(
    x: PackedWeight, read: Callable[[str], StoredArray], config: Mapping[str, Any] | None = None
) -> OpenedPacked:
    """Read the stored tensors of a packed weight."""
    config = config or {}
    if problem := why_not_dequantized(x, config):
        raise LlamathError(
            f"{safe(x.name)} cannot be dequantized: {problem}",
            hint="use the checkpoint that it was quantized from",
        )
    arrays = {
        _end(name, x): (stored.dtype, as_array(stored))
        for name in (x.values, *x.companions)
        for stored in (read(name),)
    }
    return OpenedPacked(x, arrays, config)


class OpenedPacked:
    """The stored tensors of a packed weight, a matrix or a stack of matrices."""

    def __init__(self, x: PackedWeight, arrays: Arrays, config: Mapping[str, Any]) -> None:
        layout = layout_of(x.kind)
        assert layout is not None
        if layout.stored_shape is not None:
            x = x._replace(shape=layout.stored_shape(x, arrays))
        assert x.shape is not None
        self.shape: Shape = x.shape
        self.weight, self.arrays, self.config, self._layout = x, arrays, config, layout
        self._matrix = -1
        self._rows: dict[int, Rows] = {}

    def rows(self, matrix: int, first: int, last: int) -> Any:
        """Return outputs of one matrix as float32 [n, in]; `first` is a multiple of 64."""
        try:
            found = self.rows_at(matrix, 0)(first, last)
        except (ValueError, IndexError, TypeError, ArithmeticError):
            found = None
        if found is None or found.shape != (last - first, self.shape[-1]):
            shapes = ", ".join(
                f"{end} {list(array.shape)}" for end, (_, array) in self.arrays.items()
            )
            name = f"{safe(self.weight.name)} ({safe(self.weight.kind, 40)})"
            raise LlamathError(f"{name}: its tensors do not match each other: {shapes}")
        return found

    @property
    def has_half_steps(self) -> bool:
        """Whether codes are the nearest ones, so that values have bounds."""
        return self._layout.steps is not None

    @property
    def error_limit(self) -> float:
        """The largest relative error of a matrix that quantizers cause which move values beyond
        half a step; 0 if none does.
        """
        steps = self._layout.steps
        if isinstance(steps, WholeNumbers) and steps.is_moved:
            return MOVED_ERRORS[steps.bits(self)]
        return 0.0

    def half_steps(self, matrix: int, first: int, last: int) -> tuple[Any, Any]:
        """Return half the distance of each value to the next one towards 0, and away from it; a
        whole distance beyond the last value.
        """
        assert self._layout.steps is not None
        return self._layout.steps.half_steps(self, matrix, first, last)

    @property
    def values(self) -> Array:
        """The stored values, of all matrices."""
        return self.arrays["values"][1]

    def neighbors(self, matrix: int, first: int, last: int) -> tuple[Any, Any, Any]:
        """Return outputs as they are, and with codes a step towards zero and away from it."""
        with require_numpy().errstate(invalid="ignore", over="ignore"):
            value, less, more = (self.rows_at(matrix, x)(first, last) for x in (0, -1, 1))
        return value, less, more

    def rows_at(self, matrix: int, step: int) -> Rows:
        """Open one matrix with the codes as they are (0), or as its layout moves them by a step."""
        if matrix != self._matrix:
            self._rows, self._matrix = {}, matrix
        if step not in self._rows:
            outer = self.shape[:-2]
            own = {
                end: (dtype, _matrix_of(array, outer, matrix))
                for end, (dtype, array) in self.arrays.items()
            }
            if step and self._layout.steps is not None:
                own |= self._layout.steps.moved(self, own, step)
            self._rows[step] = self._layout.open(StoredMatrix(self.weight, own, self.config))
        return self._rows[step]


def _matrix_of(array: Array, outer: Shape, i: int) -> Any:
    """Return the part of a stack's tensor that belongs to one matrix; a tensor without the outer
    axes is shared.
    """
    if not outer or array.shape[: len(outer)] != outer:
        return array
    return array.reshape(-1, *array.shape[len(outer) :])[i]


def why_not_dequantized(x: PackedWeight, config: Mapping[str, Any] | None = None) -> str:
    """Return the reason why a packed weight cannot be dequantized, or an empty string."""
    config = config or {}
    layout, method = layout_of(x.kind), config.get("quant_method")
    if layout is None:
        return f"the layout of {safe(x.kind, 40)} has no dequantization"
    if layout.stored_shape is not None:
        has_shape = any(layout.shape_in in name for name in x.companions)
        return "" if has_shape else f"it has no {layout.shape_words}"
    if x.shape is None or len(x.shape) < 2:
        return "its shape is not in the headers"
    declared = producer_of_method(method) if isinstance(method, str) else None
    for producer in (producer_of_kind(x.kind), declared):
        why_not = None if producer is None else producer.why_not
        if why_not is not None and (problem := why_not(x, config)):
            return problem
    return ""


def _end(name: str, x: PackedWeight) -> str:
    """Return what a stored tensor adds to the name of its weight: `values`, `weight_scale`,
    `scales`, `absmax`, `state`.
    """
    if name == x.values:
        return "values"
    if ".quant_state." in name:
        return "state"
    if name.startswith(f"{x.name}."):
        return name[len(x.name) + 1 :]
    stem = x.name.removesuffix("weight")
    if name.startswith(x.name) and not x.name.endswith("weight"):
        return "weight" + name[len(x.name) :]  # of a stack of experts, which is no module
    return name.removeprefix(stem)
