"""`Space`: all hypotheses about one base; and `Way`, one of them that leads to a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from ...core.record_type import Record
from .explain_base import Base, Kind, blocks
from .moves import PLAIN, Adapters, Move, Packing, adapters, depths, extras, heads, norms, packings, tables

MOST_MOVES = 3


class Shape(NamedTuple):
    """The layers as some moves have left them."""

    moves: tuple[Move, ...]
    kinds: tuple[tuple[Kind, int], ...]
    value: int  # of the whole model
    bits: float


class Way(NamedTuple):
    """One way to a number: a shape, how it is stored, and what else was done to it."""

    base: Base
    shape: Shape
    packing: Packing = PLAIN
    moves: tuple[Move, ...] = ()
    vocabulary: int | None = None
    adapters: Adapters | None = None
    rank: int = 0
    alone: bool = False  # the adapters without the model
    bits: float = 0.0
    value: int = 0

    @property
    def steps(self) -> int:
        """How many moves it takes."""
        more = (self.packing is not PLAIN) + (self.vocabulary is not None) + (self.adapters is not None)
        return len(self.shape.moves) + len(self.moves) + more


class Space(Record):
    """All hypotheses about one base, within so many bits."""

    base: Base
    known: Mapping[int, str]
    bits: float  # that a way may take, the base's name not counted

    @cached_property
    def plain(self) -> Shape:
        """The base as it is."""
        return Shape((), tuple((kind, kind.times) for kind in self.base.kinds), self.base.total, 0.0)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The base as it is, with other heads, a little deeper or shallower."""
        found = []
        for depth, kinds in depths(self.base):
            value = self.base.total + (depth.value if depth else 0)
            for move in (None, *heads(kinds)):
                moves = tuple(x for x in (depth, move) if x is not None)
                bits = sum(x.bits for x in moves)
                if bits <= self.bits:
                    found.append(Shape(moves, kinds, value + (move.value if move else 0), bits))
        return tuple(found)

    @cached_property
    def packings(self) -> tuple[Packing, ...]:
        """How it may be stored."""
        return tuple(x for x in packings(self.base) if x.bits <= self.bits)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """What changes no layer."""
        return (*tables(self.base), *extras(self.base))

    def _norms(self, kinds: tuple[tuple[Kind, int], ...]) -> tuple[Move, ...]:
        if (key := tuple(n for _, n in kinds)) not in self.memo:
            self.memo[key] = tuple(norms(self.base, kinds))
        return self.memo[key]

    @cached_property
    def memo(self) -> dict[tuple[int, ...], tuple[Move, ...]]:
        """The moves on norms, by how many layers there are of each kind."""
        return {}

    @cached_property
    def adapters(self) -> tuple[Adapters, ...]:
        """The sets of adapters."""
        return tuple(adapters(self.base))

    def saved(self, shape: Shape, packing: Packing) -> int | None:
        """What storage takes off the number of stored numbers (FP8's scales add some); None where it does not come out even."""
        if packing is PLAIN:
            return 0
        if packing.scales and shape.moves:
            return None
        more = _scales(self.base, packing) if packing.scales else 0
        whole = sum(kind.sort(name) * n for kind, n in shape.kinds for name in packing.sorts)
        whole += sum(x.value for x in shape.moves if x.group == "heads") * ("kv" in packing.sorts)
        if packing.head:
            whole += self.base.vocabulary * self.base.outside["head_row"]
        return whole - whole // packing.divisor - more if whole and whole % packing.divisor == 0 else None

    def stored(self) -> Iterator[tuple[Shape, Packing, int, float]]:
        """Every shape in every storage: what it comes to, and how many bits it takes to say so."""
        for shape in self.shapes:
            for packing in self.packings:
                bits = shape.bits + packing.bits
                if bits > self.bits or len(shape.moves) + (packing is not PLAIN) > MOST_MOVES:
                    continue
                saved = self.saved(shape, packing)
                if saved is not None:
                    yield shape, packing, shape.value - saved, bits

    def around(self, shape: Shape, packing: Packing) -> list[Move]:
        """The moves that go with a shape and its storage."""
        room = self.bits - shape.bits - packing.bits
        found = [x for x in (*self.moves, *self._norms(shape.kinds)) if x.bits <= room]
        if packing.head:
            found = [x for x in found if x.group != "tables"]
        if packing.scales == "blocks of 128×128" and (more := self.base.further.get("scales")):
            return [x._replace(value=x.value + more, formula=f"{x.formula} + scales") if x.group == "mtp" else x for x in found]
        return [x for x in found if x.group != "mtp"] if packing is not PLAIN else found


def _scales(base: Base, packing: Packing) -> int:
    """How many numbers are stored beside the linear layers' own."""
    linear = [x for x in base.matrices if x.paths[0].startswith("layers.") and x.group != "router"]
    return sum(BESIDE[packing.scales](x.out, x.into) * x.copies for x in linear)


BESIDE: dict[str, Callable[[int, int], int]] = {
    "blocks of 128×128": blocks,
    "rows": lambda rows, _: rows,
    "matrices": lambda *_: 1,
    "AWQ": lambda rows, columns: rows * columns // 128 + rows * columns // 1024,
    "GPTQ": lambda rows, columns: rows * columns // 128 + rows * columns // 1024 + columns,
}
"""The same of one matrix."""
