"""`MemoryLine`: one line of a memory report, with its formula; and the estimate of the overhead, which every memory report has."""

from __future__ import annotations

from ..core.expr import Expr, floor_div, total
from ..core.record_type import Record

OVERHEAD_FIXED, OVERHEAD_DIVISOR = 512 * 2**20, 50
"""The overhead is 512 MiB for the device's context and libraries, and 2 % (1/50) of everything but weights and optimizer states."""


class MemoryLine(Record):
    """The bytes of one part of the memory, with their formula; an inexact line is an estimate, and its formula says whose."""

    what: str
    bytes: int
    formula: str
    exact: bool = True


def overhead_bytes(dynamic: int) -> Expr:
    """Return the overhead's estimate, given the bytes that are allocated and freed as the model runs."""
    return total((OVERHEAD_FIXED, floor_div(dynamic, OVERHEAD_DIVISOR)))


def overhead_line(dynamic: int, what: str) -> MemoryLine:
    """Return the overhead as a line of a report; `what` names its dynamic part."""
    rule = f"{OVERHEAD_FIXED // 2**20} MiB + {100 // OVERHEAD_DIVISOR} % of {what}"
    what_for = "an estimate: the device's context, library workspaces, allocator fragmentation"
    return MemoryLine(what="overhead", bytes=overhead_bytes(dynamic), formula=f"{rule}, {what_for}", exact=False)
