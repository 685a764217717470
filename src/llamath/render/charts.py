"""Bars of parts, and waterfall charts, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ..utils.errors import safe
from ..utils.number_format import short_count
from .table import dim, terminal_width, wrap
from .tables import Bar, Bars, Step

_FREE, _EDGE = ".", "│"
_MAX_BARS = 12
_MAX_WIDTH, _MIN_WIDTH = 60, 20


def bar_lines(bars: Bars) -> Iterator[str]:
    """Yield a line for each bar and their legend."""
    scale = max(max(x.limit, sum(x.parts)) for x in bars.bars) or 1
    indent = max(len(safe(x.label)) for x in bars.bars)
    room = terminal_width() - indent - max(len(x.text) for x in bars.bars) - 5
    width = max(min(room, _MAX_WIDTH), _MIN_WIDTH)
    for x in bars.bars[:_MAX_BARS]:
        yield f"{safe(x.label):{indent}}  {_draw(x, bars, scale, width)}  {x.text}".rstrip()
    if len(bars.bars) > _MAX_BARS:
        yield f"… and {len(bars.bars) - _MAX_BARS:,} more"
    marks = dict.fromkeys(f"{mark} {what}" for what, mark in bars.marks if what)
    yield from map(dim, wrap(", ".join([*marks, f"{_FREE} free"]), " " * (indent + 2)))


def _draw(bar: Bar, bars: Bars, scale: int, width: int) -> str:
    """Return a bar; `│` is the end of the memory if it is too small."""
    text, edge, done = "", round(bar.limit / scale * width), 0
    for (_, mark), part in zip(bars.marks, bar.parts, strict=True):
        done += part
        text += mark * (round(done / scale * width) - len(text))
    text += _FREE * (edge - len(text))
    return text if edge >= len(text) else f"{text[:edge]}{_EDGE}{text[edge:]}"


def waterfall_bounds(start: int, deltas: Sequence[int]) -> tuple[int, int]:
    """Return the ends of the axis: it starts at 0, or below the lowest level if all changes are
    near the top.
    """
    levels = list(accumulate(deltas, initial=start))
    low, high = min(levels), max(levels)
    margin = (high - low) // 8
    return (low - margin if low - margin > high // 3 else 0), high


def waterfall(steps: Sequence[Step], width: int) -> tuple[list[str], str]:
    """Return a bar for each step, and a legend if the bars do not start at 0."""
    start = next((x.end for x in steps if x.is_total), 0)
    low, high = waterfall_bounds(start, [x.end - x.start for x in steps if not x.is_total])

    def at(n: int) -> int:
        return round((n - low) * width / ((high - low) or 1))

    bars = [
        _total_bar(at(x.end), low > 0)
        if x.is_total
        else _change_bar(at(x.start), at(x.end), x.end > x.start, width)
        for x in steps
    ]
    return bars, f"≈ bars from {short_count(low)} to {short_count(high)}" if low else ""


def _total_bar(end: int, broken: bool) -> str:
    return (("≈" if broken else "█") + "█" * (end - 1)) if end > 0 else "▏"


def _change_bar(start: int, end: int, up: bool, width: int) -> str:
    first, last = min(start, end), max(start, end)
    if first == last:
        first, last = (first, first + 1) if first < width else (first - 1, first)
    length = last - first
    return " " * first + ("━" * (length - 1) + ">" if up else "<" + "━" * (length - 1))
