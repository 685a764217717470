"""A waterfall of text: each cause as a bar from the running total to the next, its direction told by an arrow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ...core.number_format import short_count

MIN_WATERFALL_WIDTH = 12
"""A chart narrower than this says nothing."""


def waterfall_bounds(start: int, deltas: Sequence[int]) -> tuple[int, int]:
    """The axis: from 0, or from below the lowest level where all the change is near the top."""
    levels = list(accumulate(deltas, initial=start))
    low, high = min(levels), max(levels)
    margin = (high - low) // 8
    return (low - margin if low - margin > high // 3 else 0), high


def waterfall_bars(start: int, deltas: Sequence[int], width: int) -> list[str]:
    """A line for the first total, one for each cause, one for the last total."""
    low, high = waterfall_bounds(start, deltas)

    def at(n: int) -> int:
        return round((n - low) * width / ((high - low) or 1))

    level, lines = start, [_total(at(start), low > 0)]
    for delta in deltas:
        lines.append(_bar(at(level), at(level + delta), delta > 0, width))
        level += delta
    return [*lines, _total(at(level), low > 0)]


def axis(start: int, deltas: Sequence[int]) -> str:
    """What the two ends of the chart stand for."""
    low, high = waterfall_bounds(start, deltas)
    return f"bars from {short_count(low)} to {short_count(high)}" if low else ""


def _total(end: int, broken: bool) -> str:
    return (("≈" if broken else "█") + "█" * (end - 1)) if end > 0 else "▏"


def _bar(start: int, end: int, up: bool, width: int) -> str:
    first, last = min(start, end), max(start, end)
    if first == last:
        first, last = (first, first + 1) if first < width else (first - 1, first)
    length = last - first
    return " " * first + ("━" * (length - 1) + ">" if up else "<" + "━" * (length - 1))
