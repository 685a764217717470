"""The difference of two models as an SVG waterfall chart: an arrow for each cause, from one
total to the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.understand.diff.causes import METHOD
from ...analysis.understand.diff.model_diff import DiffReport
from ...utils.number_format import format_short_signed, format_signed, short_count
from ..charts import waterfall_bounds
from .svg_shapes import line, path, rect, svg_document, text, truncate_text

WIDTH, ROW, TOP, LABELS, NUMBERS = 960, 44, 92, 330, 170
LEFT, RIGHT, LEAST = LABELS + NUMBERS, 936, 3


def waterfall_svg(report: DiffReport) -> str:
    """Return the chart as SVG, with a row for each total and each cause."""
    a, b = report.a, report.b
    title = f"{a.name} → {b.name}: {format_signed(report.delta)} parameters"
    summary = (
        "; ".join(f"{x.label}: {format_signed(x.delta)} ({x.where})" for x in report.causes)
        or "nothing differs"
    )
    height = TOP + ROW * (len(report.causes) + 2) + 34
    return svg_document(
        (WIDTH, height),
        title,
        f"From {report.total.a:,} to {report.total.b:,}: {summary}. {METHOD}",
        _shapes(report, height),
    )


def _shapes(report: DiffReport, height: int) -> Iterator[str]:
    a, b = report.a, report.b
    low, high = waterfall_bounds(report.total.a, [x.delta for x in report.causes])

    def at(n: int) -> float:
        return LEFT + (n - low) * (RIGHT - LEFT) / ((high - low) or 1)

    yield text((24, 38), truncate_text(f"{a.name} → {b.name}", 900, 20), size=20, bold=True)
    yield text(
        (24, 62),
        f"{format_signed(report.delta)} parameters: {report.total.a:,} → {report.total.b:,}",
        "faint",
    )
    y, level = float(TOP), report.total.a
    yield from _total(y, at(level), a.name, level, low > 0)
    for cause in report.causes:
        yield line((at(level), y + 32), (at(level), y + ROW + 8))
        y += ROW
        yield from _row_labels(
            y, cause.label, cause.describe_weights(format_short_signed), format_signed(cause.delta)
        )
        yield _arrow(
            y, at(level), at(level + cause.delta), f"{cause.label}: {format_signed(cause.delta)}"
        )
        level += cause.delta
    yield line((at(level), y + 32), (at(level), y + ROW + 8))
    yield from _total(y + ROW, at(level), b.name, level, low > 0)
    start = f"bars start at {short_count(low)}, not at 0; " if low else ""
    yield text(
        (24, height - 16),
        f"{start}▶ more, ◀ fewer; causes in order, each measured with the earlier ones applied",
        "faint",
        size=11,
    )


def _total(y: float, end: float, name: str, n: int, broken: bool) -> Iterator[str]:
    yield text((24, y + 25), truncate_text(name, LABELS - 30), bold=True)
    yield text((LEFT - 16, y + 25), f"{n:,}", anchor="end", bold=True)
    yield rect((LEFT, y + 8, max(end - LEFT, 1.5), 24), "total", f"{name}: {n:,}")
    if broken:
        yield path(
            [(LEFT + 8, y + 34), (LEFT + 16, y + 6), (LEFT + 20, y + 6), (LEFT + 12, y + 34)],
            "page",
        )


def _row_labels(y: float, name: str, place: str, number: str) -> Iterator[str]:
    yield text((24, y + 18), truncate_text(name, LABELS + 20))
    yield text((24, y + 34), truncate_text(place, LEFT - 24, 11), "faint", size=11)
    yield text((LEFT - 16, y + 18), number, anchor="end")


def _arrow(y: float, start: float, end: float, note: str) -> str:
    """Return an arrow from start to end; a short one is only the arrowhead."""
    style, sign = ("up", 1) if end >= start else ("down", -1)
    if abs(end - start) < LEAST:
        start = min(max(start, LEFT + LEAST), RIGHT - LEAST)
        end = start + LEAST * sign
    neck = end - sign * min(10.0, abs(end - start))
    points = [(start, y + 8), (neck, y + 8), (end, y + 20), (neck, y + 32), (start, y + 32)]
    return path(points, style, note)
