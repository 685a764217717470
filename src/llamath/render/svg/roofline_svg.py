"""The roofline of a GPU as SVG: attainable FLOP/s over FLOPs per byte, with decode and prefill
as points.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

from ...analysis.size.fit.fit_report import FitReport
from ...analysis.size.fit.fit_words import format_sequences, split_text
from ...analysis.size.memory.gpu_shards import ShardedModel
from ...analysis.size.memory.inference_memory import MemoryCalculator
from ...analysis.size.memory.speed_limits import SpeedLimit, decode_limit
from ...model import FamilyModel
from ...utils.errors import LlamathError
from ...utils.number_format import format_rate
from .svg_shapes import CHAR_WIDTH, line, path, rect, svg_document, text, truncate_text

WIDTH, HEIGHT = 960, 584
LEFT, RIGHT, TOP, BOTTOM = 96, 924, 104, 500
_PREFIXES = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"))


class Point(NamedTuple):
    """A pass as a point of the roofline, with its label."""

    speed: SpeedLimit
    style: str
    name: str
    detail: str


class Plane(NamedTuple):
    """The first and last power of ten of both axes."""

    x: tuple[int, int]
    y: tuple[int, int]

    def at(self, intensity: float, flops: float) -> tuple[float, float]:
        """Return the pixel position of a value."""
        across = (log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        up = (log10(flops) - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)


def roofline_svg(model: FamilyModel, sizes: MemoryCalculator, report: FitReport) -> str:
    """Return the roofline plot as SVG; the GPU needs a published bandwidth and peak FLOP/s."""
    if report.ceilings is None:
        raise LlamathError(
            f"a roofline needs the memory bandwidth of {report.gpu.title}", hint="add bw=1TB/s"
        )
    roof = report.ceilings.roof
    if roof.peak is None:
        raise LlamathError(
            f"no FLOP/s figure is published for {report.gpu.title}, so it has no roofline"
        )
    points = list(_points(sizes, report))
    ridge = roof.peak / roof.bandwidth
    intensities = [ridge, *(x.speed.intensity for x in points)]
    slowest = min(x.speed.flops / x.speed.seconds for x in points)
    across = floor(log10(min(intensities)) - 0.15), ceil(log10(max(intensities)) + 0.3)
    plane = Plane(across, (floor(log10(slowest) - 0.3), ceil(log10(roof.peak) + 0.2)))
    title = f"{model.name} on {report.gpu.title}: the roofline of one GPU"
    detail = "; ".join(f"{x.name}: {x.detail}" for x in points)
    return svg_document(
        (WIDTH, HEIGHT),
        title,
        f"{detail}. Ceilings, not predictions.",
        _shapes(model, report, plane, points),
    )


def _points(sizes: MemoryCalculator, report: FitReport) -> Iterator[Point]:
    """Yield decode at batch 1, at the requested batch and at the largest batch that fits, then
    prefill.
    """
    assert report.ceilings is not None
    shards = ShardedModel(sizes, report.layout)
    for batch in sorted({1, report.batch, *([report.max_batch] if report.max_batch else [])}):
        speed = decode_limit(shards, report.ceilings.roof, report.context, batch)
        yield Point(
            speed,
            "up",
            f"decode, {batch:,} sequence{'s' if batch > 1 else ''}",
            f"≤ {format_rate(speed.tokens_per_second)} tokens/s",
        )
    if (reading := report.ceilings.prefill) is not None:
        yield Point(
            reading,
            "down",
            f"prefill, {format_sequences(report.batch, report.context)}",
            f"≤ {format_rate(reading.tokens_per_second)} tokens/s",
        )


def _shapes(
    model: FamilyModel, report: FitReport, plane: Plane, points: list[Point]
) -> Iterator[str]:
    count = f"{report.count:,} × " if report.count > 1 else ""
    yield text(
        (24, 38),
        truncate_text(f"{model.name} on {count}{report.gpu.title}", 900, 20),
        size=20,
        bold=True,
    )
    settings = (
        f"{report.dtype}, cache in {report.kv_dtype}, {split_text(report.layout)}; decode "
        f"at {report.context:,} tokens of context"
    )
    yield text((24, 62), truncate_text(settings, 910), "faint")
    yield from _grid(plane)
    yield from _roof(report, plane)
    yield from _labeled_points(plane, points)
    yield text(
        (24, HEIGHT - 20),
        "upper bounds: bytes at full bandwidth and FLOPs at the dense peak; other costs are "
        "ignored",
        "faint",
        size=11,
    )


def _grid(plane: Plane) -> Iterator[str]:
    for power in range(plane.x[0], plane.x[1] + 1):
        x, _ = plane.at(10.0**power, 10.0 ** plane.y[0])
        yield line((x, TOP), (x, BOTTOM))
        yield text(
            (x, BOTTOM + 20),
            f"{10**power:,}" if power >= 0 else f"{10.0**power:g}",
            "faint",
            "middle",
            11,
        )
    for power in range(plane.y[0], plane.y[1] + 1):
        _, y = plane.at(10.0 ** plane.x[0], 10.0**power)
        yield line((LEFT, y), (RIGHT, y))
        yield text((LEFT - 8, y + 4), _format_flops_rate(10**power), "faint", "end", 11)
    yield text(((LEFT + RIGHT) / 2, BOTTOM + 44), "FLOPs per byte read", "ink", "middle", 12)
    yield text((24, TOP - 18), "FLOP/s per GPU", "ink", size=12)


def _format_flops_rate(value: int) -> str:
    """Format a FLOP/s rate with its SI prefix."""
    unit, letter = next(((n, x) for n, x in _PREFIXES if value >= n), (1, ""))
    return f"{value / unit:.4g} {letter}FLOP/s"


def _roof(report: FitReport, plane: Plane) -> Iterator[str]:
    assert report.ceilings is not None
    roof, peak = report.ceilings.roof, report.ceilings.roof.peak or 0
    ridge, first, last = peak / roof.bandwidth, 10.0 ** plane.x[0], 10.0 ** plane.x[1]
    start = max(first, 10.0 ** plane.y[0] / roof.bandwidth)
    corners = [plane.at(start, start * roof.bandwidth), plane.at(ridge, peak), plane.at(last, peak)]
    for a, b in pairwise(corners):
        yield path(
            [(a[0], a[1] - 1.5), (b[0], b[1] - 1.5), (b[0], b[1] + 1.5), (a[0], a[1] + 1.5)],
            "total",
        )
    x, y = corners[1]
    yield text(
        (RIGHT, y - 12),
        f"{_format_flops_rate(peak)} dense in {roof.dtype}",
        "total",
        "end",
        12,
        bold=True,
    )
    yield text((x - 14, y + 4), f"{roof.bandwidth / 1e12:g} TB/s", "total", "end", 12, bold=True)
    yield line((x, y), (x, BOTTOM))
    yield text((x + 6, BOTTOM - 8), f"ridge at {ridge:,.0f}", "faint", size=11)


def _labeled_points(plane: Plane, points: list[Point]) -> Iterator[str]:
    """Yield a diamond with a two-line label for each point; overlapping labels are moved down
    and connected by a line.
    """
    placed = [(*plane.at(x.speed.intensity, x.speed.flops / x.speed.seconds), x) for x in points]
    taken: list[tuple[float, float, float]] = []
    for x, y, point in sorted(placed, key=lambda one: one[:2]):
        yield path(
            [(x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)],
            point.style,
            f"{point.name}: {point.detail}",
        )
    for x, y, point in sorted(placed, key=lambda one: (one[1], -one[0])):
        wide = max(len(point.name), len(point.detail)) * 12 * CHAR_WIDTH
        left = min(x + 14, RIGHT - wide)
        top = first = y + (14 if left >= x + 14 else 26)
        while any(
            abs(top - other) < 36 and left < end and start < left + wide
            for other, start, end in taken
        ):
            top += 6
        taken.append((top, left, left + wide))
        if top > first:
            yield line((x, y + 7), (x, top - 4))
            yield line((x, top - 4), (left - 4, top - 4))
        yield rect((left - 3, top - 13, wide + 6, 33), "page")
        yield text((left, top), point.name, size=12, bold=True)
        yield text((left, top + 16), point.detail, "faint", size=12)
