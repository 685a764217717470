"""`Program`: a model as a flat list of operations on buffers, which the C++ interpreter in
`interpreter.cpp` executes.

A buffer has rows of float32: one or more for each token, or one for each sequence. A `View` is a
part of each row, with heads `head_stride` floats apart.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.positions import Rope
from ..utils.record_type import Record

MAX_OUTPUTS, MAX_INPUTS, MAX_WEIGHTS, MAX_INTS, MAX_FLOATS = 2, 5, 5, 10, 6
"""Sizes of the arrays of an operation in `program.h`, which also has the names of all
operations."""


class View(NamedTuple):
    """A part of each row of a buffer."""

    buffer: int = -1
    offset: int = 0
    stride: int = 0  # floats of a row of the buffer
    heads: int = 1
    head_stride: int = 0
    dim: int = 0

    @property
    def size(self) -> int:
        """The number of floats of a row."""
        return self.heads * self.dim

    @property
    def has_joined_heads(self) -> bool:
        """Whether the heads of a row follow each other without gaps."""
        return self.heads == 1 or self.head_stride == self.dim

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the buffer."""
        return self.has_joined_heads and self.offset == 0 and self.stride == self.size


class Linear(NamedTuple):
    """One of several matrix products with the same input."""

    weight: int
    bias: int  # −1: none
    out: View


class Op(NamedTuple):
    """One operation."""

    name: str
    path: str  # of the block that it is part of
    outs: tuple[View, ...]
    inputs: tuple[View, ...] = ()
    weights: tuple[int, ...] = ()
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    # of a linear operation, which gets more of them while a program is made
    products: list[Linear] = []  # noqa: RUF012


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
