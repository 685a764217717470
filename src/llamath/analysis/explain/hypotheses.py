"""`Hypothesis`: one explanation of a number; `HypothesisSpace`: all hypotheses about one base
model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from ...checkpoint.quantization.schemes import SCALE_LAYOUTS
from ...utils.record_type import Record
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
from .priors import CHANGED_FILES_BITS

MAX_MOVES = 3


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
        shapes = []
        for depth, kinds in depth_moves(self.base):
            value = self.base.total + (depth.value if depth else 0)
            for move in (None, *head_moves(kinds)):
                moves = tuple(x for x in (depth, move) if x is not None)
                bits = sum(x.bits for x in moves)
                if bits <= self.bits:
                    shapes.append(
                        _LayerShape(moves, kinds, value + (move.value if move else 0), bits)
                    )
        return tuple(shapes)

    @cached_property
    def packings(self) -> tuple[Packing, ...]:
        """The possible packings."""
        return tuple(x for x in packings(self.base) if x.bits <= self.bits)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves that change no layer."""
        return (*table_moves(self.base), *extra_moves(self.base))

    def _norms(self, kinds: tuple[tuple[LayerKind, int], ...]) -> tuple[Move, ...]:
        if (key := tuple(n for _, n in kinds)) not in self.memo:
            self.memo[key] = tuple(norm_moves(self.base, kinds))
        return self.memo[key]

    @cached_property
    def memo(self) -> dict[tuple[int, ...], tuple[Move, ...]]:
        """The moves on norms, by number of layers of each kind."""
        return {}

    @cached_property
    def adapters(self) -> tuple[AdapterSet, ...]:
        """The sets of adapters."""
        return tuple(adapter_sets(self.base))

    def saved(self, shape: _LayerShape, packing: Packing) -> int | None:
        """The elements that packing saves (negative if FP8 adds scales); None if the elements do
        not divide evenly.
        """
        if packing is UNPACKED:
            return 0
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
        moves = [x for x in (*self.moves, *self._norms(shape.kinds)) if x.bits <= room]
        if packing.head:
            moves = [x for x in moves if x.group != "tables"]
        if packing.scales:
            moves = [
                x._replace(bits=x.bits + CHANGED_FILES_BITS)
                if x.group in ("tables", "norms")
                else x
                for x in moves
            ]
        if packing.scales == "blocks of 128×128" and (scales := self.base.mtp.get("scales")):
            return [
                x._replace(value=x.value + scales, formula=f"{x.formula} + scales")
                if x.group == "mtp"
                else x
                for x in moves
            ]
        return [x for x in moves if x.group != "mtp"] if packing is not UNPACKED else moves


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
