"""The data of an output tensor, piece by piece: rows of the source in their order, or weights
that change from one layout to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple, Protocol

from ..checkpoint.formats.dtypes import DTYPES, GGML, PLAIN
from ..checkpoint.formats.number_arrays import require_numpy
from ..checkpoint.naming.scheme import half_split_order, interleaved_order
from ..checkpoint.naming.stored_layouts import (
    LayoutParams,
    apply_layout,
    join_tensors,
    split_tensor,
    undo_layout,
)
from ..checkpoint.quantization.ggml_values import dequantize_ggml
from ..checkpoint.tensor_reader import CHUNK_BYTES, TensorReader
from ..utils.errors import ConvertError, safe
from .float_cast import cast_blocks
from .quantize_blocks import quantize_blocks
from .source_tensors import Shape, SourceTensor, row_width

GGML_BLOCKS = frozenset(x.name for x in GGML.values() if x.block > 1)
"""Types of blocks, in which quantized weights are stored."""
_BITS = {"F32": "<u4", "F16": "<u2", "BF16": "<u2"}


class Piece(Protocol):
    """A part of the data of a tensor."""

    @property
    def source_name(self) -> str:
        """The tensor that an error is about."""

    def chunks(self, dtype: str, reader: TensorReader, /) -> Iterator[bytes]:
        """Yield the numbers in this dtype."""

    def identity(self) -> str:
        """Return text that identifies the sources and their changes."""


class RowRange(NamedTuple):
    """The rows `first` up to `last` of a source tensor."""

    source: SourceTensor
    first: int
    last: int
    # rows of a head to permute: > 0 from halves to interleaved pairs, < 0 from pairs to halves, 0
    # none
    rotary_rows: int = 0

    @property
    def source_name(self) -> str:
        """The source tensor."""
        return self.source.name

    def chunks(self, dtype: str, reader: TensorReader) -> Iterator[bytes]:
        """Yield the numbers in this dtype, some rows at a time."""
        head, width = abs(self.rotary_rows) or 1, row_width(self.source.shape)
        size = DTYPES[self.source.dtype].size(width)
        step = (
            max(1, CHUNK_BYTES // (size * head)) * head
            if self.source.is_contiguous
            else self.last - self.first
        )
        for first in range(self.first, self.last, step):
            data = self.source.read(reader, first, min(self.last, first + step))
            yield from encode(
                _permute_rotary(data, size, self.rotary_rows) if self.rotary_rows else data,
                self.source.dtype,
                dtype,
            )

    def identity(self) -> str:
        """Return text that identifies the source and its changes."""
        return repr((self.source.identity(), self.first, self.last, self.rotary_rows))


class StoredWeights(NamedTuple):
    """Consecutive rows of a source tensor that hold the weights of these shapes in a layout."""

    source: SourceTensor
    first: int
    last: int
    shape: Shape  # of these rows as one tensor
    shapes: tuple[Shape, ...]
    layouts: tuple[str, ...]  # of each weight; the first is the layout of the tensor
    params: LayoutParams
    modules: tuple[str, ...]  # names of the weights in their block: `q.weight`


class Rearranged(NamedTuple):
    """Weights in another layout than the source's, one expert's or all of a tensor's."""

    groups: tuple[StoredWeights, ...]
    # of each weight: the number of its group, and its place there
    picks: tuple[tuple[int, int], ...]
    shape: Shape
    layouts: tuple[str, ...]
    params: LayoutParams
    modules: tuple[str, ...]

    @property
    def source_name(self) -> str:
        """The first source tensor."""
        return self.groups[0].source.name

    def chunks(self, dtype: str, reader: TensorReader) -> Iterator[bytes]:
        """Yield the numbers in this dtype."""
        np = require_numpy()
        sources = {x.source.dtype for x in self.groups}
        working = next(iter(sources)) if len(sources) == 1 else "F32"
        words = {
            word
            for layouts in (self.layouts, *(x.layouts for x in self.groups))
            for layout in layouts
            for word in layout.split()
        }
        if words & {"shifted", "decay"} or (
            working in GGML_BLOCKS and (working != dtype or words & {"flip", "flat", "tiled"})
        ):
            working = "F32"
        weights: dict[tuple[int, int], Any] = {}
        for i, group in enumerate(self.groups):
            data = b"".join(
                encode(
                    group.source.read(reader, group.first, group.last), group.source.dtype, working
                )
            )
            parts = split_tensor(
                _as_array(np, data, group.shape, working, words),
                group.shapes,
                group.layouts[0],
                group.params,
            )
            for j, (x, layout, module) in enumerate(
                zip(parts, group.layouts, group.modules, strict=True)
            ):
                if (i, j) in self.picks:
                    weights[i, j] = undo_layout(x, layout, group.params, module, np)
        parts = [
            apply_layout(weights[pick], layout, self.params, module, np)
            for pick, layout, module in zip(self.picks, self.layouts, self.modules, strict=True)
        ]
        shape = (
            (*self.shape[:-1], DTYPES[working].size(self.shape[-1]))
            if working in GGML_BLOCKS
            else self.shape
        )
        joined = join_tensors(parts, self.layouts[0], self.params, np, shape)
        yield from encode(np.ascontiguousarray(joined).tobytes(), working, dtype)

    def identity(self) -> str:
        """Return text that identifies the sources and their changes."""
        groups = [(x.source.identity(), *x[1:]) for x in self.groups]
        return repr((groups, *self[1:]))


def encode(data: bytes, source: str, target: str) -> Iterator[bytes]:
    """Yield whole rows of numbers in another dtype; blocks are dequantized and quantized in F32."""
    if source == target:
        yield data
        return
    if source in GGML_BLOCKS:
        data, source = dequantize_ggml(data, source).tobytes(), "F32"
    if target in GGML_BLOCKS:
        yield quantize_blocks(b"".join(cast_blocks(data, source, "F32")), target)
    else:
        yield from cast_blocks(data, source, target)


def named_errors(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the chunks; an error about a number names the tensor."""
    try:
        yield from chunks
    except ConvertError as error:
        raise ConvertError(f"{safe(name)}: {error}", hint=error.hint) from None


def _as_array(np: Any, data: bytes, shape: Shape, dtype: str, words: set[str]) -> Any:
    """Return numbers as an array: floats where a layout changes values, else their bits; rows of
    blocks are rows of bytes.
    """
    if dtype in GGML_BLOCKS:
        return np.frombuffer(data, "u1").reshape(*shape[:-1], -1)
    changes_values = bool(words & {"shifted", "decay"})
    return np.frombuffer(data, "<f4" if changes_values else _BITS[dtype]).reshape(shape)


def _permute_rotary(data: bytes, size: int, rotary_rows: int) -> bytes:
    """Permute the rows of each head between halves (i, i + h/2) and interleaved pairs (2i, 2i +
    1).
    """
    order = interleaved_order(rotary_rows) if rotary_rows > 0 else half_split_order(-rotary_rows)
    view = memoryview(data)
    heads = range(0, len(data), len(order) * size)
    return b"".join(
        [view[head + i * size : head + (i + 1) * size] for head in heads for i in order]
    )


def stored_size(dtype: str, shape: Shape) -> int:
    """Return the bytes of a tensor whose rows are whole blocks."""
    if not shape or dtype in PLAIN:
        return DTYPES[dtype].size(prod(shape))
    return prod(shape[:-1]) * DTYPES[dtype].size(shape[-1])
