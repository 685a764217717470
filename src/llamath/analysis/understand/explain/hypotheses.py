"""`Hypothesis`: one explanation of a number; `HypothesisSpace`: all hypotheses about one base
model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

from ....checkpoint.quantization.schemes import SCALE_LAYOUTS
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

MAX_MOVES = 3
T = TypeVar("T")


class _LayerShape(NamedTuple):
    """The layers after some moves."""

    moves: tuple[Move, ...]
    kinds: tuple[tuple[LayerKind, int], ...]
    value: int  # parameters of the whole model
    bits: float


class Hypothesis(NamedTuple):
    """One explanation of a number: a shape, a packing, and further changes."""

    base: BaseModel
    shape: _LayerShape
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
    def base_shape(self) -> _LayerShape:
        """The unchanged base."""
        return _LayerShape(
            (), tuple((kind, kind.times) for kind in self.base.kinds), self.base.total, 0.0
        )

    @cached_property
    def shapes(self) -> tuple[_LayerShape, ...]:
        """The base with its own or other KV heads, and a few layers more or less."""
        every = self._known("shapes", lambda: tuple(_all_shapes(self.base)))
        return tuple(x for x in every if x.bits <= self.bits)

    @cached_property
    def packings(self) -> tuple[Packing, ...]:
        """The possible packings."""
        every = self._known("packings", lambda: tuple(packings(self.base)))
        return tuple(x for x in every if x.bits <= self.bits)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves that change no layer."""
        return self._known("moves", lambda: (*table_moves(self.base), *extra_moves(self.base)))

    def _norms(self, kinds: tuple[tuple[LayerKind, int], ...]) -> tuple[Move, ...]:
        key = ("norms", *(n for _, n in kinds))
        return self._known(key, lambda: tuple(norm_moves(self.base, kinds)))

    @cached_property
    def adapters(self) -> tuple[AdapterSet, ...]:
        """The sets of adapters."""
        return self._known("adapters", lambda: tuple(adapter_sets(self.base)))

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Bounds of what moves and another vocabulary size add to the count of a shape in a
        packing: a search need not look beyond. Adapters may add more.
        """
        return self._known("reach", self._reach)

    def _reach(self) -> tuple[int, int]:
        base, own = self.base, [x.value for x in self.moves]
        for kinds in {id(x.kinds): x.kinds for x in _all_shapes(base)}.values():
            own += [x.value for x in self._norms(kinds)]
        out = base.outside_layers
        row = base.vocab_row + out["embed_row"] + out["head_row"]
        least, most = min((*own, 0)), max((*own, 0)) + base.mtp.get("scales", 0)
        return MAX_MOVES * least - base.vocabulary * row, MAX_MOVES * most + MAX_VOCAB * row

    def _known(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what an earlier search found out about the base, or find it."""
        memo: dict[Hashable, T] = self.base.memo
        if key not in memo:
            memo[key] = find()
        return memo[key]

    def saved(self, shape: _LayerShape, packing: Packing) -> int | None:
        """The elements that packing saves (negative if FP8 adds scales); None if the elements do
        not divide evenly.
        """
        if packing is UNPACKED:
            return 0
        # shapes and packings of a base are the same objects in each search, but the unchanged one
        key = ("saved", id(shape) if shape.moves else 0, id(packing))
        return self._known(key, lambda: self._saved(shape, packing))

    def _saved(self, shape: _LayerShape, packing: Packing) -> int | None:
        if packing.scales and shape.moves:
            return None
        num_scales = _num_scales(self.base, packing) if packing.scales else 0
        elements = sum(kind.elements(name) * n for kind, n in shape.kinds for name in packing.kinds)
        elements += sum(x.value for x in shape.moves if x.group == "heads") * (
            "kv" in packing.kinds
        )
        if packing.head:
            elements += self.base.vocabulary * self.base.outside_layers["head_row"]
        return (
            elements - elements // packing.divisor - num_scales
            if elements and elements % packing.divisor == 0
            else None
        )

    def stored_counts(self) -> Iterator[tuple[_LayerShape, Packing, int, float]]:
        """Yield every shape in every packing, with its count and its bits."""
        for shape in self.shapes:
            for packing in self.packings:
                bits = shape.bits + packing.bits
                if bits > self.bits or len(shape.moves) + (packing is not UNPACKED) > MAX_MOVES:
                    continue
                saved = self.saved(shape, packing)
                if saved is not None:
                    yield shape, packing, shape.value - saved, bits

    def compatible_moves(self, shape: _LayerShape, packing: Packing) -> list[Move]:
        """The moves that can be combined with a shape and its packing."""
        room = self.bits - shape.bits - packing.bits
        key = ("compatible", id(shape) if shape.moves else 0, id(packing))
        every = self._known(key, lambda: self._compatible_moves(shape, packing))
        return [x for bits, x in every if bits <= room]

    def _compatible_moves(self, shape: _LayerShape, packing: Packing) -> list[tuple[float, Move]]:
        """The moves that can be combined with a shape and its packing, with their own bits."""
        moves = [*self.moves, *self._norms(shape.kinds)]
        if packing.head:
            moves = [x for x in moves if x.group != "tables"]
        scales = self.base.mtp.get("scales") if packing.scales == "blocks of 128×128" else None
        if packing is not UNPACKED and not scales:
            moves = [x for x in moves if x.group != "mtp"]
        found = []
        for x in moves:
            changed = x
            if packing.scales and x.group in ("tables", "norms"):
                changed = x._replace(bits=x.bits + CHANGED_FILES_BITS)
            elif scales and x.group == "mtp":
                changed = x._replace(value=x.value + scales, formula=f"{x.formula} + scales")
            found.append((x.bits, changed))
        return found


def _all_shapes(base: BaseModel) -> Iterator[_LayerShape]:
    for depth, kinds in depth_moves(base):
        value = base.total + (depth.value if depth else 0)
        for move in (None, *head_moves(kinds)):
            moves = tuple(x for x in (depth, move) if x is not None)
            bits = sum(x.bits for x in moves)
            yield _LayerShape(moves, kinds, value + (move.value if move else 0), bits)


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
