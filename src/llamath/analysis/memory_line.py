"""`MemoryLine`: one line of a memory report, with its formula; and the estimate of the overhead, which every memory report has."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.expr import Expr, floor_div, total
from ..utils.number_format import group_digits
from ..utils.record_type import Record

OVERHEAD_FIXED, OVERHEAD_DIVISOR = 512 * 2**20, 50
"""The overhead is 512 MiB for the device's context and libraries, and 2 % (1/50) of everything but weights and optimizer states."""


class MemoryLine(Record):
    """The bytes of one part of the memory, with their formula; an inexact line is an estimate, and its formula says whose."""

    what: str
    bytes: int
    formula: str
    exact: bool = True


def expression_line(what: str, size: int, note: str = "", exact: bool = True) -> MemoryLine:
    """Return a line with the formula of its bytes, in letters and in numbers."""
    size = Expr.const(size)
    formula = group_digits(f"{size.symbol} = {size.numbers}") + (f", {note}" if note else "")
    return MemoryLine(what=what, bytes=size, formula=formula, exact=exact)


def letters_of(lines: Iterable[MemoryLine]) -> dict[str, int]:
    """Return the dimensions of the model in the formulas of lines, with their values."""
    return {letter: n for x in lines for letter, n in Expr.const(x.bytes).atoms.items() if letter not in ("B", "T", "n")}


def overhead_bytes(dynamic: int) -> Expr:
    """Return the overhead's estimate, given the bytes that are allocated and freed as the model runs."""
    return total((OVERHEAD_FIXED, floor_div(dynamic, OVERHEAD_DIVISOR)))


def overhead_line(dynamic: int, what: str) -> MemoryLine:
    """Return the overhead as a line of a report; `what` names its dynamic part."""
    rule = f"{OVERHEAD_FIXED // 2**20} MiB + {100 // OVERHEAD_DIVISOR} % of {what}"
    what_for = "an estimate: the device's context, library workspaces, allocator fragmentation"
    return MemoryLine(what="overhead", bytes=overhead_bytes(dynamic), formula=f"{rule}, {what_for}", exact=False)
