"""When weights are packed: at the first pass over few tokens, and again when another format is requested.

Passes over many tokens read weights in their original layout, which is nearly as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .matmul import PANEL_ROWS, CpuLinear, Int8Linear, MkldnnPackedLinear, PanelPackedLinear, PlainLinear, SlicedLinear

_HEAD_SLICE_ROWS = 8192
"""Rows of a head packed at once."""
_BREAK_EVEN_TOKENS = 32
"""Generated tokens after which packing has saved about as much time as it took."""
LONG_GENERATION = 128
"""The same limit for matrices that already reach nearly memory bandwidth in their original layout."""
_SMALL_MATRIX = 1024
"""Matrices with at most this many rows or columns are read below memory bandwidth in their original layout."""


class PackingFormat(NamedTuple):
    """A packed layout, and the passes and matrices that it is used for."""

    pack: Callable[[Tensor, Tensor | None], CpuLinear]
    max_tokens: float  # a pass over more tokens does not trigger packing
    keep_for_many: bool = True  # once packed, passes over more tokens use it too
    row_multiple: int = 1  # only matrices whose number of rows is a multiple of this
    small_only: bool = False  # only small matrices

    def suits(self, rows: int, columns: int) -> bool:
        """Whether a matrix of this shape is packed."""
        return rows % self.row_multiple == 0 and (not self.small_only or min(rows, columns) <= _SMALL_MATRIX)


PANELS = PackingFormat(PanelPackedLinear, 2, keep_for_many=False, row_multiple=PANEL_ROWS)
SMALL_PANELS = PANELS._replace(small_only=True)
MKLDNN = PackingFormat(MkldnnPackedLinear, 64)
INT8 = PackingFormat(Int8Linear, float("inf"))

FORMAT_ORDER = (None, SMALL_PANELS, PANELS, MKLDNN, INT8)
"""A packed model is only repacked in a later format of this order."""


def default_format(dtype: torch.dtype, tokens: int, rows: int) -> PackingFormat | None:
    """Return the format that pays off for `rows` sequences of `tokens` generated tokens; None: the original layout."""
    if tokens < _BREAK_EVEN_TOKENS:
        return None
    if dtype != torch.float32 or rows > 2:
        return MKLDNN
    return (PANELS if tokens >= LONG_GENERATION else SMALL_PANELS) if torch.backends.mkl.is_available() else None


class PackedWeights:
    """State shared by the packed layers of a model: the format, the size of the current pass, and the file pages to release."""

    def __init__(self, format: PackingFormat | None, release_pages: Callable[[], object]) -> None:  # noqa: A002
        self.format, self.release_pages = format, release_pages
        self.tokens = 0  # of the current pass
        self.num_packed = 0  # matrices packed so far
        self.shapes = set[tuple[int, int]]()
        self.files_read = False  # whether original weights were read that are also kept packed
        self.covers_model = False  # whether every matrix but the embedding is a packed layer's

    def release_read_pages(self) -> None:
        """Return the pages of mapped files to the system whose weights are kept packed."""
        if self.files_read or self.reads_files_once():
            self.release_pages()
            self.files_read = False

    def reads_files_once(self) -> bool:
        """Whether every matrix is packed in this format, so that mapped files are read once."""
        packing = self.format
        return self.covers_model and packing is not None and bool(self.shapes) and all(packing.suits(*x) for x in self.shapes)


_WeightGetter = Callable[[], tuple[Tensor, Tensor | None]]
"""Returns a matrix and its bias."""


class LazyPackedLinear(CpuLinear):
    """A linear layer that packs its weight at its first pass over few tokens; `plain` serves all other passes."""

    def __init__(self, shared: PackedWeights, plain: CpuLinear, shape: tuple[int, int], get_weight: _WeightGetter) -> None:
        self.shared, self.plain, self.shape, self.get_weight = shared, plain, shape, get_weight
        self.packed_format: PackingFormat | None = None
        self.packed: CpuLinear = plain
        shared.shapes.add(shape)

    def _select(self, x: Tensor) -> CpuLinear:
        """Return the layer for this input, packing the weight if it is time."""
        packing = self.shared.format
        if packing is None or not packing.suits(*self.shape):
            return self.plain
        is_packed = self.packed_format is not None and self.packed_format.pack is packing.pack
        if max(self.shared.tokens, x.numel() // x.shape[-1]) > packing.max_tokens and not (is_packed and packing.keep_for_many):
            self.shared.files_read = True
            return self.plain
        if not is_packed:
            self.packed = self.plain  # free the former packed weight first
            self.packed, self.packed_format = self.pack(packing), packing
            self.shared.files_read = True
            self.shared.num_packed += 1
        return self.packed

    def pack(self, packing: PackingFormat) -> CpuLinear:
        """Return the layer packed in this format."""
        return packing.pack(*self.get_weight())

    def __call__(self, x: Tensor) -> Tensor:
        return self._select(x)(x)

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        return self._select(x).apply_act(x, activation)

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._select(x).apply_mul(x, y)

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._select(x).apply_add(x, y)


class _Linear(Protocol):
    """The module of a linear layer."""

    weight: Tensor
    bias: Tensor | None


class SplitLinear(LazyPackedLinear):
    """A lazily packed linear layer with many rows, packed in slices."""

    def __init__(self, shared: PackedWeights, linear: _Linear) -> None:
        self.linear = linear
        self.slices = [slice(first, first + _HEAD_SLICE_ROWS) for first in range(0, len(linear.weight), _HEAD_SLICE_ROWS)]
        plain = SlicedLinear([PlainLinear(*self._slice_weight(x)) for x in self.slices], shared.release_read_pages)
        super().__init__(shared, plain, _matrix_shape(linear), lambda: (linear.weight, linear.bias))

    def _slice_weight(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        return self.linear.weight[rows], None if self.linear.bias is None else self.linear.bias[rows]

    def pack(self, packing: PackingFormat) -> CpuLinear:
        slices: list[CpuLinear] = []
        for rows in self.slices:
            slices.append(packing.pack(*self._slice_weight(rows)))
            self.shared.release_pages()
        return SlicedLinear(slices)


def lazy_linear(shared: PackedWeights, linear: _Linear) -> LazyPackedLinear:
    """Return the lazily packed form of a linear layer."""
    weight, bias = linear.weight, linear.bias
    return LazyPackedLinear(shared, PlainLinear(weight, bias), _matrix_shape(linear), lambda: (weight, bias))


def _matrix_shape(linear: _Linear) -> tuple[int, int]:
    """Rows and columns of the weight."""
    rows, columns = linear.weight.shape
    return rows, columns
