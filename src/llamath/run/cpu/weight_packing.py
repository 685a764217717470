"""When weights are laid out for speed: not before few tokens are to be read, again when that is to be done in another way.

Where many tokens are read at once, weights are read where they lie, which is nearly as fast and gives the same numbers to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..basic_layers import Linear
from .matmul import PANEL, Lying, Ordered, Panels, Product, Slices, Whole

ROWS = 8192
"""So many rows of a head are laid out at once."""
AMORTISED = 32
"""Tokens by which another order has saved about as much time as laying weights out in it took."""
SMALL = 1024
"""With so few rows or columns a matrix is read slower than the memory gives it where it lies."""
LONG = 128
"""The same for what is read nearly as fast where it lies."""


class Kind(NamedTuple):
    """How weights are kept: laid out for passes of up to so many tokens, then good for `many` or not.

    All of them whose rows are a multiple of some, or the small ones alone.
    """

    make: Callable[[Tensor, Tensor | None], Product]
    most: float
    many: bool = True
    rows: int = 1
    small: bool = False

    def suits(self, rows: int, columns: int) -> bool:
        """Whether a matrix of this shape is kept so."""
        return rows % self.rows == 0 and (not self.small or min(rows, columns) <= SMALL)


PANELS = Kind(Panels, 2, many=False, rows=PANEL)
SOME = PANELS._replace(small=True)
ORDERED = Kind(Ordered, 64)
WHOLE = Kind(Whole, float("inf"))


RANKS = (None, SOME, PANELS, ORDERED, WHOLE)
"""What is laid out in one way is not laid out again in one before it."""


def usual_kind(dtype: torch.dtype, tokens: int, rows: int) -> Kind | None:
    """What repays in texts of so many tokens, so many of them at a time; None: as they lie."""
    if tokens < AMORTISED:
        return None
    if dtype != torch.float32 or rows > 2:
        return ORDERED
    return (PANELS if tokens >= LONG else SOME) if torch.backends.mkl.is_available() else None


Weight = Callable[[], tuple[Tensor, Tensor | None]]
"""A matrix and its bias, made when it is asked for."""


class Laying:
    """What the quick parts of a model share: how its weights are to be kept, and how many tokens are being read."""

    def __init__(self, kind: Kind | None, forget: Callable[[], object]) -> None:
        self.kind, self.forget = kind, forget
        self.tokens, self.shapes = 0, set[tuple[int, int]]()
        self.read = False  # whether files have been, for what is kept in another way, too
        self.whole = False  # whether nothing but the embedding's rows is not theirs

    def settle(self) -> None:
        """Give back the memory of what was read of the files and is kept in another way."""
        if self.read or self.apart():
            self.forget()
            self.read = False

    def apart(self) -> bool:
        """Whether whatever is read of the files, a few rows or all, is read once."""
        kind = self.kind
        return self.whole and kind is not None and bool(self.shapes) and all(kind.suits(*x) for x in self.shapes)


class Late(Product):
    """A product that is made when it is first wanted; `lying` stands in where it does not suit or tokens are many."""

    def __init__(self, laying: Laying, lying: Product, shape: tuple[int, int], weight: Weight) -> None:
        self.laying, self.lying, self.shape, self.weight = laying, lying, shape, weight
        self.kind: Kind | None = None
        self.kept: Product = lying
        laying.shapes.add(shape)

    def _for(self, x: Tensor) -> Product:
        kind = self.laying.kind
        if kind is None or not kind.suits(*self.shape):
            return self.lying
        laid = self.kind is not None and self.kind.make is kind.make
        if max(self.laying.tokens, x.numel() // x.shape[-1]) > kind.most and not (laid and kind.many):
            self.laying.read = True
            return self.lying
        if not laid:
            self.kept = self.lying  # what was kept is free before there is another
            self.kept, self.kind = self.made(kind), kind
            self.laying.read = True
        return self.kept

    def made(self, kind: Kind) -> Product:
        """The product that is to be kept."""
        return kind.make(*self.weight())

    def __call__(self, x: Tensor) -> Tensor:
        return self._for(x)(x)

    def activated(self, x: Tensor, activation: str) -> Tensor:
        return self._for(x).activated(x, activation)

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        return self._for(x).times(x, y)

    def plus(self, x: Tensor, y: Tensor) -> Tensor:
        return self._for(x).plus(x, y)


class Tall(Late):
    """The same for a matrix so tall that it should never be there twice as a whole."""

    def __init__(self, laying: Laying, own: Linear) -> None:
        self.own, self.slices = own, [slice(first, first + ROWS) for first in range(0, len(own.weight), ROWS)]
        lying = Slices([Lying(*self._rows(x)) for x in self.slices], laying.settle)
        super().__init__(laying, lying, shape(own), lambda: (own.weight, own.bias))

    def _rows(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        return self.own.weight[rows], None if self.own.bias is None else self.own.bias[rows]

    def made(self, kind: Kind) -> Product:
        parts: list[Product] = []
        for rows in self.slices:
            parts.append(kind.make(*self._rows(rows)))
            self.laying.forget()
        return Slices(parts)


def late(laying: Laying, own: Linear) -> Late:
    """One matrix's."""
    weight, bias = own.weight, own.bias
    return Late(laying, Lying(weight, bias), shape(own), lambda: (weight, bias))


def shape(own: Linear) -> tuple[int, int]:
    """Rows and columns."""
    rows, columns = own.weight.shape
    return rows, columns
