"""`MatrixFormat`: the tensors that a quantizer stores for one matrix [out, in], with their dtypes,
shapes and bytes.

A tensor is written as the text `.weight_scale F8_E4M3 out in/16`; shapes, bytes and the formula
that users read come from it.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

from ...core.expr import Expr, as_number, ceil_div, product, total
from ...utils.number_format import group_digits
from ...utils.number_marks import is_marking
from ...utils.record_type import Record
from ..formats.dtypes import DTYPES


class Axis(NamedTuple):
    """The length of an axis of a stored tensor: ⌈letter · times / per⌉ · each, or a constant."""

    letter: str  # out, in, out·in, or empty for a constant
    times: int = 1
    per: int = 1
    each: int = 1

    def length(self, out: int, into: int) -> int:
        """Return the length for a matrix of this shape."""
        n = {"out": out, "in": into, "out·in": out * into, "": 1}[self.letter]
        return -(-n * self.times // self.per) * self.each

    def expression(self, out: int, into: int) -> Expr:
        """Return the length as an expression of the matrix's dimensions."""
        if not self.letter:
            return Expr.const(self.times)
        if self.letter != "out·in" and (self.times, self.per, self.each) == (1, 1, 1):
            return Expr.const(out if self.letter == "out" else into)
        length = Expr.const(
            {"out": out, "in": into, "out·in": out * into}[self.letter] * self.times
        )
        if self.per > 1:
            length = Expr.const(ceil_div(length, self.per))
        return length if self.each == 1 else product((length, Expr.factor(self.each)))


OUT, IN = Axis("out"), Axis("in")


def _axis(text: str) -> Axis:
    """Parse `in*3/32`, which is ⌈in · 3 / 32⌉, `in/1024*8`, which is ⌈in / 1024⌉ · 8, or a
    number; in lowest terms where that does not change the length.
    """
    if text.isdecimal():
        return Axis("", int(text))
    head, _, tail = text.partition("/")
    letter, _, times_text = head.partition("*")
    by_text, _, each = tail.partition("*")
    times, by = int(times_text or 1), int(by_text or 1)
    while times % 2 == 0 and by % 2 == 0:
        times, by = times // 2, by // 2
    return Axis(letter, times, by, int(each or 1))


class MatrixPart(NamedTuple):
    """A tensor that is stored for a matrix; its name is that of the module with `suffix`."""

    suffix: str
    dtype: str
    axes: tuple[Axis, ...] = ()


@lru_cache(maxsize=256)
def _part(text: str) -> MatrixPart:
    suffix, dtype, *axes = text.split()
    return MatrixPart(suffix, dtype, tuple(map(_axis, axes)))


def parts(*texts: str) -> tuple[MatrixPart, ...]:
    """Return tensors from texts, `.qzeros I32 in/128 out/8`; empty texts are none."""
    return tuple(_part(x) for x in texts if x)


def groups(size: int) -> str:
    """Return the axis of groups of inputs; 0 or less is one group for the whole row."""
    return f"in/{size}" if size > 0 else "1"


def group_name(method: str, bits: int, group: int) -> str:
    """Return the name of a format with scales of groups: `awq-4bit-g128`."""
    return f"{method}-{bits}bit-g{group}" if group > 0 else f"{method}-{bits}bit-channel"


def group_title(method: str, bits: int, group: int) -> str:
    """Return the title of a format with scales of groups."""
    of = f"{group} weights" if group > 0 else "each row"
    return f"{method} with {bits} bits, a scale for {of}"


class StoredMatrixTensor(NamedTuple):
    """A tensor stored for a matrix of a known shape."""

    suffix: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes of the tensor."""
        return DTYPES[self.dtype].size(prod(self.shape))


class MatrixFormat(Record):
    """How a quantizer stores a matrix."""

    name: str  # short, as in `awq-4bit-g128`
    title: str  # in words
    parts: tuple[MatrixPart, ...]
    # the GPU rate that applies to its products; empty: it is unpacked to 16 bits first
    compute_rate: str = ""
    divides: int = 1  # matrices whose inputs are no multiple of it stay unquantized

    def tensors(self, out: int, into: int) -> tuple[StoredMatrixTensor, ...]:
        """Return the tensors stored for a matrix of this shape."""
        return tuple(
            StoredMatrixTensor(x.suffix, x.dtype, tuple(axis.length(out, into) for axis in x.axes))
            for x in self.parts
        )

    def bytes(self, out: int, into: int) -> int:
        """Return the bytes stored for a matrix of this shape."""
        if is_marking():  # `parts` are cached without their expressions
            return as_number(self.expression(out, into))
        return _bytes(self.parts, out, into)

    def scale_elements(self, out: int, into: int) -> int:
        """Return the elements stored in addition to the values: scales, zero points, indices."""
        return sum(prod(x.shape) for x in self.tensors(out, into)[1:])

    def expression(self, out: int, into: int) -> Expr:
        """Return the bytes as an expression of the matrix's dimensions."""
        return total(
            product((DTYPES[x.dtype].bytes, *(axis.expression(out, into) for axis in x.axes)))
            for x in self.parts
        )

    @cached_property
    def formula(self) -> str:
        """The bytes as text."""
        return group_digits(self.expression(Expr.variable("out", 1), Expr.variable("in", 1)).symbol)


@lru_cache(maxsize=4096)
def _bytes(parts: tuple[MatrixPart, ...], out: int, into: int) -> int:
    return sum(
        DTYPES[x.dtype].bytes * prod(axis.length(out, into) for axis in x.axes) for x in parts
    )
