"""When weights are laid out for speed: not before few tokens are to be read, again when that is to be done in another way.

Where many tokens are read at once, weights are read where they lie, which is nearly as fast and gives the same numbers to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..basic_layers import Linear
from .matmul import PANEL_ROWS, CpuLinear, Int8Linear, MkldnnPackedLinear, PanelPackedLinear, PlainLinear, SlicedLinear

HEAD_SLICE_ROWS = 8192
"""So many rows of a head are laid out at once."""
BREAK_EVEN_TOKENS = 32
"""Tokens by which another order has saved about as much time as laying weights out in it took."""
SMALL_MATRIX = 1024
"""With so few rows or columns a matrix is read slower than the memory gives it where it lies."""
LONG_GENERATION = 128
"""The same for what is read nearly as fast where it lies."""


class PackingFormat(NamedTuple):
    """How weights are kept: laid out for passes of up to so many tokens, then good for `many` or not.

    All of them whose rows are a multiple of some, or the small ones alone.
    """

    pack: Callable[[Tensor, Tensor | None], CpuLinear]
    max_tokens: float
    keep_for_many: bool = True
    row_multiple: int = 1
    small_only: bool = False

    def suits(self, rows: int, columns: int) -> bool:
        """Whether a matrix of this shape is kept so."""
        return rows % self.row_multiple == 0 and (not self.small_only or min(rows, columns) <= SMALL_MATRIX)


PANELS = PackingFormat(PanelPackedLinear, 2, keep_for_many=False, row_multiple=PANEL_ROWS)
SMALL_PANELS = PANELS._replace(small_only=True)
MKLDNN = PackingFormat(MkldnnPackedLinear, 64)
INT8 = PackingFormat(Int8Linear, float("inf"))


FORMAT_ORDER = (None, SMALL_PANELS, PANELS, MKLDNN, INT8)
"""What is laid out in one way is not laid out again in one before it."""


def default_format(dtype: torch.dtype, tokens: int, rows: int) -> PackingFormat | None:
    """What repays in texts of so many tokens, so many of them at a time; None: as they lie."""
    if tokens < BREAK_EVEN_TOKENS:
        return None
    if dtype != torch.float32 or rows > 2:
        return MKLDNN
    return (PANELS if tokens >= LONG_GENERATION else SMALL_PANELS) if torch.backends.mkl.is_available() else None


WeightGetter = Callable[[], tuple[Tensor, Tensor | None]]
"""A matrix and its bias, made when it is asked for."""


class PackedWeights:
    """What the quick parts of a model share: how its weights are to be kept, and how many tokens are being read."""

    def __init__(self, kind: PackingFormat | None, forget: Callable[[], object]) -> None:
        self.format, self.release_pages = kind, forget
        self.tokens, self.shapes = 0, set[tuple[int, int]]()
        self.files_read = False  # whether files have been, for what is kept in another way, too
        self.covers_model = False  # whether nothing but the embedding's rows is not theirs

    def release_read_pages(self) -> None:
        """Give back the memory of what was read of the files and is kept in another way."""
        if self.files_read or self.reads_files_once():
            self.release_pages()
            self.files_read = False

    def reads_files_once(self) -> bool:
        """Whether whatever is read of the files, a few rows or all, is read once."""
        kind = self.format
        return self.covers_model and kind is not None and bool(self.shapes) and all(kind.suits(*x) for x in self.shapes)


class LazyPackedLinear(CpuLinear):
    """A product that is made when it is first wanted; `lying` stands in where it does not suit or tokens are many."""

    def __init__(self, laying: PackedWeights, lying: CpuLinear, shape: tuple[int, int], weight: WeightGetter) -> None:
        self.shared, self.plain, self.shape, self.get_weight = laying, lying, shape, weight
        self.packed_format: PackingFormat | None = None
        self.packed: CpuLinear = lying
        laying.shapes.add(shape)

    def _select(self, x: Tensor) -> CpuLinear:
        kind = self.shared.format
        if kind is None or not kind.suits(*self.shape):
            return self.plain
        laid = self.packed_format is not None and self.packed_format.pack is kind.pack
        if max(self.shared.tokens, x.numel() // x.shape[-1]) > kind.max_tokens and not (laid and kind.keep_for_many):
            self.shared.files_read = True
            return self.plain
        if not laid:
            self.packed = self.plain  # what was kept is free before there is another
            self.packed, self.packed_format = self.pack(kind), kind
            self.shared.files_read = True
        return self.packed

    def pack(self, kind: PackingFormat) -> CpuLinear:
        """The product that is to be kept."""
        return kind.pack(*self.get_weight())

    def __call__(self, x: Tensor) -> Tensor:
        return self._select(x)(x)

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        return self._select(x).apply_act(x, activation)

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._select(x).apply_mul(x, y)

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._select(x).apply_add(x, y)


class SplitLinear(LazyPackedLinear):
    """The same for a matrix so tall that it should never be there twice as a whole."""

    def __init__(self, laying: PackedWeights, own: Linear) -> None:
        self.linear, self.slices = own, [slice(first, first + HEAD_SLICE_ROWS) for first in range(0, len(own.weight), HEAD_SLICE_ROWS)]
        lying = SlicedLinear([PlainLinear(*self._slice_weight(x)) for x in self.slices], laying.release_read_pages)
        super().__init__(laying, lying, matrix_shape(own), lambda: (own.weight, own.bias))

    def _slice_weight(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        return self.linear.weight[rows], None if self.linear.bias is None else self.linear.bias[rows]

    def pack(self, kind: PackingFormat) -> CpuLinear:
        parts: list[CpuLinear] = []
        for rows in self.slices:
            parts.append(kind.pack(*self._slice_weight(rows)))
            self.shared.release_pages()
        return SlicedLinear(parts)


def lazy_linear(laying: PackedWeights, own: Linear) -> LazyPackedLinear:
    """One matrix's."""
    weight, bias = own.weight, own.bias
    return LazyPackedLinear(laying, PlainLinear(weight, bias), matrix_shape(own), lambda: (weight, bias))


def matrix_shape(own: Linear) -> tuple[int, int]:
    """Rows and columns."""
    rows, columns = own.weight.shape
    return rows, columns
