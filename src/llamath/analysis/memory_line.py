"""`Line`: one line of a memory report, with the formula that it comes from."""

from __future__ import annotations

from ..core.record_type import Record


class MemoryLine(Record):
    """So many bytes for something; an inexact one is an estimate, and its formula says of what."""

    what: str
    bytes: int
    formula: str
    exact: bool = True
