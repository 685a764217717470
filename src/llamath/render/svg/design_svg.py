"""The candidates of a design as an SVG plot: error of the total against width over layers, the
best numbered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log, log10

from ...analysis.understand.design.design_ranking import RankedDesign
from ...analysis.understand.design.design_report import DesignReport
from ...utils.number_format import short_count
from .svg_shapes import circle, line, svg_document, text, truncate_text

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 92, 560, 96, 490
LIST = 596
_MERGE_DISTANCE = 4
SHOWN = 12
"""Candidates that get a number and a line next to the plot."""


def design_svg(report: DesignReport) -> str:
    """Return the plot of a design report as SVG."""
    target = report.request.target
    many = len(report.candidates)
    title = f"{target:,} parameters like {report.series.name}: {many} candidate{'s' * (many != 1)}"
    label = (
        "; ".join(
            f"{i}: {_candidate_text(x, target)}" for i, x in enumerate(report.ranked[:SHOWN], 1)
        )
        or "no candidate"
    )
    return svg_document(
        (WIDTH, HEIGHT),
        title,
        f"Error of the total against width over layers. {label}.",
        _shapes(report, title),
    )


def _candidate_text(x: RankedDesign, target: int) -> str:
    o = x.outer
    return (
        f"{x.layers} layers, width {o.d}, ffn {x.ffn}, {o.H} heads, {o.K} KV, "
        f"{_error_percent(x, target):+.2f}%"
    )


def _error_percent(x: RankedDesign, target: int) -> float:
    return 100 * (x.total - target) / target


def _shapes(report: DesignReport, title: str) -> Iterator[str]:
    target, ranked = report.request.target, report.ranked
    yield text((24, 38), truncate_text(title, 900, 20), size=20, bold=True)
    share = f"{float(100 * report.request.tolerance):g}%"
    yield text(
        (24, 62),
        f"{report.searched:,} searched, {report.within:,} within {share}, {len(ranked)} plotted",
        "faint",
    )
    if not ranked:
        yield text((LEFT, 200), "no candidate meets every constraint")
        return
    aspects = [x.outer.d / x.layers for x in ranked]
    low, high = min(aspects) / 1.05, max(aspects) * 1.05
    reach = max(max(abs(_error_percent(x, target)) for x in ranked) * 1.1, 1e-6)

    def at(x: RankedDesign) -> tuple[float, float]:
        along = log(x.outer.d / x.layers / low) / log(high / low)
        return LEFT + along * (RIGHT - LEFT), (TOP + BOTTOM) / 2 - _error_percent(
            x, target
        ) / reach * (BOTTOM - TOP) / 2

    yield from _axes(low, high, reach)
    best = min(len(report.candidates), SHOWN)
    yield from (
        circle(at(x), 3, "line", _candidate_text(x, target)) for x in reversed(ranked[best:])
    )
    yield from (
        circle(at(x), 6, "total", f"{i}: {_candidate_text(x, target)}")
        for i, x in reversed(list(enumerate(ranked[:best], 1)))
    )
    yield from _point_labels([at(x) for x in ranked[:best]])
    yield from _candidate_list(ranked[:best], target)


def _axes(low: float, high: float, reach: float) -> Iterator[str]:
    for n in _ticks(low, high):
        x = LEFT + log(n / low) / log(high / low) * (RIGHT - LEFT)
        yield line((x, TOP), (x, BOTTOM))
        yield text((x, BOTTOM + 18), f"{n:g}", "faint", "middle", 12)
    step = _tick_step(reach)
    digits = max(0, -floor(log10(step)))
    for i in range(-floor(reach / step), floor(reach / step) + 1):
        y = (TOP + BOTTOM) / 2 - i * step / reach * (BOTTOM - TOP) / 2
        yield line((LEFT, y), (RIGHT, y))
        yield text(
            (LEFT - 8, y + 4),
            f"{i * step:+.{digits}f}%".replace("-", "−") if i else "target",
            "faint",
            "end",
            12,
        )
    yield text(
        ((LEFT + RIGHT) / 2, BOTTOM + 42), "width over layers (logarithmic)", "ink", "middle"
    )
    yield text((24, TOP - 10), "error of the total", "ink")


def _ticks(low: float, high: float) -> list[float]:
    """Return at most eight round tick values between two bounds."""
    step = 10 ** floor(log10(high - low)) if high > low else 1.0
    for factor in (0.1, 0.2, 0.5, 1, 2, 5):
        size = step * factor
        report = [round(i * size, 6) for i in range(ceil(low / size), floor(high / size) + 1)]
        if len(report) <= 8:
            return report
    return []


def _tick_step(reach: float) -> float:
    """Return a round tick step that gives a few ticks."""
    base = float(10 ** floor(log10(reach)))
    return next((base * x for x in (0.2, 0.5, 1.0) if reach / (base * x) <= 5), base)


def _point_labels(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Yield labels of the points, moved to avoid overlaps; coinciding points share a label."""
    spots: dict[tuple[float, float], list[int]] = {}
    for i, (x, y) in enumerate(points, 1):
        spot = next(
            (
                s
                for s in spots
                if abs(s[0] - x) < _MERGE_DISTANCE and abs(s[1] - y) < _MERGE_DISTANCE
            ),
            (x, y),
        )
        spots.setdefault(spot, []).append(i)
    taken: list[tuple[float, float, int]] = []
    for (x, y), numbers in spots.items():
        label = ", ".join(map(str, numbers))
        wide = 8 * len(label)
        places = [
            (x + 9, y - 6),
            (x - 10 - wide, y - 6),
            (x + 9, y + 15),
            (x - 10 - wide, y + 15),
            (x - 4, y - 14),
            (x - 4, y + 22),
        ]
        place = next(
            (p for p in places if not any(_overlaps(p, wide, q) for q in taken)), places[0]
        )
        taken.append((*place, wide))
        yield text(place, label, "ink", size=12, bold=True)


def _overlaps(place: tuple[float, float], wide: int, other: tuple[float, float, int]) -> bool:
    return (
        place[0] < other[0] + other[2] + 6
        and other[0] < place[0] + wide + 6
        and abs(place[1] - other[1]) < 12
    )


def _candidate_list(best: Sequence[RankedDesign], target: int) -> Iterator[str]:
    yield text((LIST, TOP - 10), "layers × width, ffn, heads / KV", "faint", size=12)
    for i, x in enumerate(best, 1):
        y = TOP + 14 + (i - 1) * 34
        o = x.outer
        yield text((LIST + 18, y), str(i), "ink", "end", bold=True)
        yield text((LIST + 28, y), f"{x.layers} × {o.d:,}, {x.ffn:,}, {o.H} / {o.K}")
        error = f"{_error_percent(x, target):+.3f}%".replace("-", "−")
        yield text(
            (LIST + 28, y + 15), f"{x.total:,} ({short_count(x.total)}), {error}", "faint", size=11
        )
