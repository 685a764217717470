"""`Program`: a model as a flat list of operations on buffers, which the C++ interpreter
executes.

A buffer has rows of float32: one or more for each token, or one for each sequence. A `View` is a
part of each row, with heads `head_stride` floats apart.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.positions import Rope
from ..utils.record_type import Record
from .native_operations import Op, Product, View


class ProgramWeight(NamedTuple):
    """A weight as the program uses it: a matrix in its stored type, or float32 values."""

    path: str  # `{e}` stands for the expert
    kind: str  # matrix, vector or per_head (one for each head, joined)
    shape: tuple[int, ...]
    experts: int = 0  # consecutive numbers for as many experts; 0: one weight


class Buffer(NamedTuple):
    """Rows of float32."""

    width: int
    rows_per_token: int  # 0: one row for each sequence


class CacheRows(NamedTuple):
    """What a mixer caches: for each token `heads` vectors of `dim` numbers, of which the last
    `lookback` tokens are read.
    """

    path: str
    name: str
    heads: int
    dim: int
    lookback: int | None


class State(NamedTuple):
    """The numbers that a recurrent operation keeps for each sequence."""

    path: str
    size: int


class Result(NamedTuple):
    """The view of an operation's result, under the name of its step in the trace."""

    name: str
    view: View
    weights: str = ""  # of attention: the name of its weights
    op: int = -1  # that computes them


class Program(Record):
    """A model, lowered."""

    ops: tuple[Op, ...]
    buffers: tuple[Buffer, ...]
    weights: tuple[ProgramWeight, ...]
    num_weights: int  # experts counted one by one
    caches: tuple[CacheRows, ...]
    states: tuple[State, ...]
    ropes: tuple[Rope, ...]
    logits: View
    results: tuple[Result, ...] = ()  # where buffers are not shared, so that all are left

    @property
    def products(self) -> list[Product]:
        """The matrix products of all operations."""
        return [x for op in self.ops for x in op.all_products]
