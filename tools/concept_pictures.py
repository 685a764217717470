"""Write the SVG pictures of the docs, formulas and the poster of README: `concept_pictures.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import cos, exp, hypot, pi, sin, sqrt
from pathlib import Path

from llamath import load
from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.render.svg.poster.poster_svg import poster_svg
from llamath.render.svg.svg_shapes import line, path, rect, svg_document, text

IMAGES = Path(__file__).parents[1] / "docs" / "images"
Point = tuple[float, float]


def softmax(scores: Sequence[float]) -> list[float]:
    powers = [exp(x - max(scores)) for x in scores]
    return [x / sum(powers) for x in powers]


def stroke(a: Point, b: Point, style: str, width: float = 2) -> str:
    """Return a solid line."""
    length = hypot(b[0] - a[0], b[1] - a[1])
    x, y = (a[1] - b[1]) / length * width / 2, (b[0] - a[0]) / length * width / 2
    corners = [(a[0] + x, a[1] + y), (b[0] + x, b[1] + y), (b[0] - x, b[1] - y)]
    return path([*corners, (a[0] - x, a[1] - y)], style)


def arrow(a: Point, b: Point, style: str) -> str:
    """Return an arrow from a to b."""
    length = hypot(b[0] - a[0], b[1] - a[1])
    x, y = (b[0] - a[0]) / length, (b[1] - a[1]) / length
    base = (b[0] - 10 * x, b[1] - 10 * y)
    head = [b, (base[0] - 5 * y, base[1] + 5 * x), (base[0] + 5 * y, base[1] - 5 * x)]
    return stroke(a, base, style, 3) + path(head, style)


def bars(at: Point, values: Sequence[float], labels: Sequence[str], style: str) -> Iterator[str]:
    """Yield upright bars above a baseline, from 0 to 1, with their values and labels."""
    x, y = at
    for i, (value, label) in enumerate(zip(values, labels, strict=True)):
        left, height = x + 62 * i, 130 * value
        yield rect((left, y - height, 44, height), style)
        yield text((left + 22, y - height - 6), f"{value:.2f}", "ink", "middle", 12)
        yield text((left + 22, y + 18), label, "faint", "middle", 12)
    yield stroke((x - 8, y), (x + 62 * len(values) - 10, y), "faint", 1)


def attention() -> str:
    """Return the example of attention.md: scores, shares, and the average of the values."""
    query, keys = (2, 0), [(2, 0), (0, 2), (1, 1)]
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) / sqrt(2) for key in keys]
    shares, names = softmax(scores), ["token 1", "token 2", "token 3"]
    values = [(10, 0), (0, 10), (5, 5)]
    result = [sum(s * v[i] for s, v in zip(shares, values, strict=True)) for i in (0, 1)]

    def shapes() -> Iterator[str]:
        origin, unit = (70, 210), 62
        yield text((24, 34), "query and keys", bold=True)
        for name, key in zip(("k1", "k2", "k3"), keys, strict=True):
            tip = (origin[0] + unit * key[0], origin[1] - unit * key[1])
            yield arrow(origin, tip, "down")
            yield text((tip[0] + 6, tip[1] - (6 if key[1] else 10)), name)
        yield arrow((origin[0], origin[1] + 8), (origin[0] + 2 * unit, origin[1] + 8), "total")
        yield text((origin[0] + 2 * unit + 6, origin[1] + 16), "q")
        yield text((264, 34), "scores q·k / √2", bold=True)
        for i, (name, score) in enumerate(zip(names, scores, strict=True)):
            y = 84 + 48 * i
            yield rect((264, y - 22, 40 * score + 1, 26), "attention")
            yield text((272 + 40 * score, y - 4), f"{score:.2f}")
            yield text((264, y + 18), name, "faint", size=12)
        yield text((470, 34), "shares: softmax", bold=True)
        yield from bars((470, 200), shares, names, "total")
        yield text((690, 34), "average of the values", bold=True)
        for i, (share, value) in enumerate(zip(shares, values, strict=True)):
            yield text((690, 84 + 30 * i), f"{share:.2f} · {value}")
        yield stroke((690, 156), (830, 156), "faint", 1)
        yield text((690, 180), f"({result[0]:.2f}, {result[1]:.2f})", bold=True)

    return svg_document(
        (880, 250),
        "Attention of one token to three",
        "A query is compared with three keys; the scores become shares by a softmax; the values "
        "are averaged by the shares.",
        shapes(),
    )


def rotation() -> str:
    """Return a query and a key turned by their positions, twice at the same distance."""
    step = pi / 7

    def shapes() -> Iterator[str]:
        for x, (query, key) in ((160, (3, 1)), (480, (8, 6))):
            center, radius = (x, 160), 96
            yield text((x, 34), f"query at {query}, key at {key}", "ink", "middle", bold=True)
            ring = [2 * pi * i / 72 for i in range(72)]
            for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
                ends = [(x + radius * cos(c), 160 - radius * sin(c)) for c in (a, b)]
                yield line(ends[0], ends[1])
            tips = {}
            for name, position, style in (("q", query, "total"), ("k", key, "down")):
                angle = position * step
                tip = (x + radius * cos(angle), 160 - radius * sin(angle))
                tips[name] = angle
                yield arrow(center, tip, style)
                yield text((tip[0] + 12 * cos(angle) - 4, tip[1] - 12 * sin(angle) + 4), name)
            between = [tips["k"] + (tips["q"] - tips["k"]) * i / 12 for i in range(13)]
            points = [(x + 34 * cos(c), 160 - 34 * sin(c)) for c in between]
            for a, b in pairwise(points):
                yield stroke(a, b, "faint", 2)
        yield text((320, 294), "the same angle between them, so the same score", "faint", "middle")

    return svg_document(
        (640, 312),
        "A rotation by position",
        "A query at position 3 and a key at 1, and the same at 8 and 6: both pairs are two steps "
        "apart, and the angle between query and key is the same.",
        shapes(),
    )


def activation() -> str:
    """Return a plot of SiLU and ReLU."""

    def shapes() -> Iterator[str]:
        def at(x: float, y: float) -> Point:
            return 240 + 44 * x, 200 - 36 * y

        yield stroke(at(-5, 0), at(5, 0), "faint", 1)
        yield stroke(at(0, -0.8), at(0, 4.6), "faint", 1)
        for x in (-4, -2, 2, 4):
            yield text((at(x, 0)[0], 230), f"{x}".replace("-", "−"), "faint", "middle", 12)
        for y in (2, 4):
            yield text((232, at(0, y)[1] + 4), f"{y}", "faint", "end", 12)
        for function, style in ((lambda x: max(x, 0.0), "line"), (_silu, "up")):
            points = [at(x / 10, function(x / 10)) for x in range(-50, 47)]
            for a, b in pairwise(points):
                yield stroke(a, b, style, 3)
        yield text(
            (at(2.5, 0)[0] + 24, at(0, 2)[1] + 10), "SiLU: x / (1 + e^(−x))", "up", bold=True
        )
        yield text((at(-4.9, 0)[0], at(0, 0.35)[1]), "ReLU: max(x, 0)", "faint")

    return svg_document(
        (560, 250),
        "SiLU and ReLU",
        "Positive numbers pass both; ReLU stops negative ones, SiLU lets a little of them through.",
        shapes(),
    )


def _silu(x: float) -> float:
    return x / (1 + exp(-x))


def temperature() -> str:
    """Return the probabilities of three tokens at three temperatures."""
    logits = [2.0, 1.0, 0.0]

    def shapes() -> Iterator[str]:
        for i, value in enumerate((0.5, 1, 2)):
            x = 32 + 236 * i
            yield text((x, 34), f"temperature {value:g}", bold=True)
            shares = softmax([y / value for y in logits])
            yield from bars((x, 200), shares, [f"logit {y:g}" for y in logits], "total")

    return svg_document(
        (720, 236),
        "Three temperatures",
        "Probabilities of three tokens with logits 2, 1 and 0: sharper below 1, flatter above.",
        shapes(),
    )


def poster() -> str:
    """Return the poster that README shows."""
    return poster_svg(fact_sheet(load("deepseek-v3")))


PICTURES: dict[str, Callable[[], str]] = {
    **{f"formula-{x.__name__}": x for x in (attention, rotation, activation, temperature)},
    "poster": poster,
}


def file_of(name: str) -> Path:
    """Return where a picture is kept."""
    return IMAGES / f"{name}.svg"


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        file_of(name).write_text(draw())
