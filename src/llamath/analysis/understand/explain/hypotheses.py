"""`Hypothesis`: one explanation of a number; `HypothesisSpace`: all hypotheses about one base
model.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from ....utils.record_type import Record
from .adapter_sets import AdapterSet, adapter_sets
from .explain_base import BaseModel, LayerKind
from .moves import (
    UNPACKED,
    Move,
    Packing,
    depth_moves,
    extra_moves,
    head_moves,
    norm_moves,
    packings,
    table_moves,
)
from .priors import CHANGED_FILES_BITS, MAX_VOCAB
from .scale_layouts import SCALE_LAYOUTS

MAX_MOVES = 3
_MTP_SCALES = "blocks of 128×128"
"""The only packing of files with multi-token-prediction layers."""
T = TypeVar("T")


class LayerShape(NamedTuple):
    """The layers after some moves."""

    moves: tuple[Move, ...]
    kinds: tuple[tuple[LayerKind, int], ...]
    value: int  # parameters of the whole model
    bits: float


class Moves(NamedTuple):
    """The moves that can be combined with a shape in a packing, ready for searches."""

    every: tuple[Move, ...]
    by_value: dict[int, list[Move]]
    rows: list[tuple[Move | None, int]]  # no move or one, with the elements of a vocabulary entry
    least: int  # the smallest value of a move, up to 0
    most: int


_StoredCount = tuple[LayerShape, Packing, int, float]


def _count(x: _StoredCount) -> int:
    return x[2]


class Hypothesis(NamedTuple):
    """One explanation of a number: a shape, a packing, and further changes."""

    base: BaseModel
    shape: LayerShape
    packing: Packing = UNPACKED
    moves: tuple[Move, ...] = ()
    vocabulary: int | None = None
    adapters: AdapterSet | None = None
    rank: int = 0
    alone: bool = False  # the adapters without the model
    bits: float = 0.0
    value: int = 0

    @property
    def steps(self) -> int:
        """The number of moves."""
        more = (
            (self.packing is not UNPACKED)
            + (self.vocabulary is not None)
            + (self.adapters is not None)
        )
        return len(self.shape.moves) + len(self.moves) + more


class HypothesisSpace(Record):
    """All hypotheses about one base within a number of bits."""

    base: BaseModel
    known_vocab_sizes: Mapping[int, str]
    bits: float  # the limit of a hypothesis, without the bits of the model's name

    @cached_property
    def base_shape(self) -> LayerShape:
        """The unchanged base."""
        return LayerShape(
            (), tuple((kind, kind.times) for kind in self.base.kinds), self.base.total, 0.0
        )

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves that change no layer."""
        return self._known("moves", lambda: (*table_moves(self.base), *extra_moves(self.base)))

    def _norms(self, kinds: tuple[tuple[LayerKind, int], ...]) -> tuple[Move, ...]:
        key = ("norms", *(n for _, n in kinds))
        return self._known(key, lambda: tuple(norm_moves(self.base, kinds)))

    @cached_property
    def adapters(self) -> Sequence[tuple[AdapterSet, int, int]]:
        """The sets of adapters, each with its parameters per rank and those of any rank."""
        V = self.base.vocabulary
        return self._known(
            "adapters",
            lambda: [
                (x, x.per_rank + x.per_rank_row * V, x.whole_row * V + x.fixed)
                for x in adapter_sets(self.base)
            ],
        )

    @cached_property
    def reach(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Bounds of what moves, and then what moves and another vocabulary size, add to the count
        of a shape in a packing: a search need not look beyond. Adapters may add more.
        """
        return self._known("reach", self._reach)

    def _reach(self) -> tuple[tuple[int, int], tuple[int, int]]:
        base, own = self.base, [x.value for x in self.moves]
        for kinds in {id(x.kinds): x.kinds for x in _all_shapes(base)}.values():
            own += [x.value for x in self._norms(kinds)]
        out = base.outside_layers
        row = base.vocab_row + out["embed_row"] + out["head_row"]
        least, most = min((*own, 0)), max((*own, 0)) + base.mtp.get("scales", 0)
        least, most = MAX_MOVES * least, MAX_MOVES * most
        return (least, most), (least - base.vocabulary * row, most + MAX_VOCAB * row)

    def _known(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what an earlier search found out about the base, or find it."""
        memo: dict[Hashable, T] = self.base.memo
        if key not in memo:
            memo[key] = find()
        return memo[key]

    def saved(self, shape: LayerShape, packing: Packing) -> int | None:
        """The elements that packing saves (negative if FP8 adds scales); None if the elements do
        not divide evenly.
        """
        if packing is UNPACKED:
            return 0
        return self._saved(packing, shape.moves, self._elements(shape, packing.kinds, packing.head))

    def _elements(self, shape: LayerShape, kinds: tuple[str, ...], head: bool) -> int:
        """The elements that are packed."""
        elements = self._elements_of_layers(shape.kinds, kinds)
        elements += sum(x.value for x in shape.moves if x.group == "heads") * ("kv" in kinds)
        if head:
            elements += self.base.vocabulary * self.base.outside_layers["head_row"]
        return elements

    def _elements_of_layers(
        self, layers: tuple[tuple[LayerKind, int], ...], kinds: tuple[str, ...]
    ) -> int:
        key = ("elements", id(layers), kinds)
        return self._known(
            key, lambda: sum(kind.elements(name) * n for kind, n in layers for name in kinds)
        )

    def _saved(self, packing: Packing, moves: tuple[Move, ...], elements: int) -> int | None:
        if packing.scales and moves:
            return None
        num_scales = _num_scales(self.base, packing) if packing.scales else 0
        return (
            elements - elements // packing.divisor - num_scales
            if elements and elements % packing.divisor == 0
            else None
        )

    def stored_counts(
        self, least: int | None = None, most: int | None = None
    ) -> Iterator[_StoredCount]:
        """Yield every shape in every packing, with its count and its bits; those with counts up to
        `most`, and of other shapes than the base's from `least` on.
        """
        own, others = self._known("stored", self._stored_counts)
        first = 0 if least is None else bisect_left(others, least, key=_count)
        last = len(others) if most is None else bisect_right(others, most, key=_count)
        for x in (*own, *others[first:last]):
            if x[3] <= self.bits and (most is None or x[2] <= most):
                yield x

    def _stored_counts(self) -> tuple[list[_StoredCount], list[_StoredCount]]:
        """Return the counts of the base's shape in all packings, and those of the other shapes in
        the order of their values.
        """
        own: list[_StoredCount] = []
        others: list[_StoredCount] = []
        every = tuple(packings(self.base))
        plain = [x for x in every if not x.scales]
        own_shape = self.base_shape
        for shape in (own_shape, *(x for x in _all_shapes(self.base) if x.moves)):
            elements: dict[tuple[tuple[str, ...], bool], int] = {}
            for packing in plain if shape.moves else every:
                saved: int | None = 0
                if packing is not UNPACKED:
                    key = packing.kinds, packing.head
                    if key not in elements:
                        elements[key] = self._elements(shape, *key)
                    saved = self._saved(packing, shape.moves, elements[key])
                if saved is not None:
                    x = shape, packing, shape.value - saved, shape.bits + packing.bits
                    (others if shape.moves else own).append(x)
        return own, sorted(others, key=_count)

    def compatible_moves(self, shape: LayerShape, packing: Packing) -> Moves:
        """The moves that can be combined with a shape and its packing."""
        # shapes of a depth share their kinds of layers, and are the same objects in each search
        layers = id(shape.kinds) if shape.moves else 0
        mtp = self.base.mtp and (packing is UNPACKED, packing.scales == _MTP_SCALES)
        key = ("compatible", layers, packing.head, bool(packing.scales), mtp or None)
        return self._known(key, lambda: self._compatible_moves(shape, packing))

    def _compatible_moves(self, shape: LayerShape, packing: Packing) -> Moves:
        moves = [*self.moves, *self._norms(shape.kinds)]
        if packing.head:
            moves = [x for x in moves if x.group != "tables"]
        scales = self.base.mtp.get("scales") if packing.scales == _MTP_SCALES else None
        if packing is not UNPACKED and not scales:
            moves = [x for x in moves if x.group != "mtp"]
        found = []
        for x in moves:
            changed = x
            if packing.scales and x.group in ("tables", "norms"):
                changed = x._replace(bits=x.bits + CHANGED_FILES_BITS)
            elif scales and x.group == "mtp":
                changed = x._replace(value=x.value + scales, formula=f"{x.formula} + scales")
            found.append(changed)
        by_value: dict[int, list[Move]] = {}
        for x in found:
            by_value.setdefault(x.value, []).append(x)
        rows = ((x, elements_per_vocab_row(self.base, x, packing)) for x in (None, *found))
        values = [0, *(x.value for x in found)]
        return Moves(tuple(found), by_value, [x for x in rows if x[1]], min(values), max(values))


def elements_per_vocab_row(base: BaseModel, move: Move | None, packing: Packing) -> int:
    """Return the parameters per vocabulary entry in the tables that are counted; 0 if a packed
    head makes that fractional.
    """
    embed, head = base.outside_layers["embed_row"], base.outside_layers["head_row"]
    if packing.head:
        return 0
    if move is None or move.tables < 0:
        return base.vocab_row
    return {0: 0, 1: embed, 2: embed + head, 3: head}[move.tables]


def _all_shapes(base: BaseModel) -> Iterator[LayerShape]:
    for depth, kinds in depth_moves(base):
        value = base.total + (depth.value if depth else 0)
        for move in (None, *head_moves(kinds)):
            moves = tuple(x for x in (depth, move) if x is not None)
            bits = sum(x.bits for x in moves)
            yield LayerShape(moves, kinds, value + (move.value if move else 0), bits)


def _num_scales(base: BaseModel, packing: Packing) -> int:
    """The number of scales (and zeros and group indices) that a packing stores for the linear
    layers.
    """
    linear = [x for x in base.matrices if x.paths[0].startswith("layers.") and x.group != "router"]
    if packing.kinds == ("experts",):
        linear = [x for x in linear if x.group == "experts"]
    return sum(
        SCALE_LAYOUTS[packing.scales].elements(x.out_features, x.in_features) * x.copies
        for x in linear
    )
