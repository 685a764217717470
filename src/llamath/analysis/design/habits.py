"""`Habits`: what a series does at a given size, and how far a candidate is from it.

Aspect ratio, feed-forward ratio and the share of the width that the heads take are interpolated over the published sizes, straight lines
between logarithms, constant beyond the ends; how much weight a deviation has is told by how well the series' own members are foretold by
the others. The distance is a sum of costs, each ½ (deviation / scatter)² or a stated number; it orders candidates and means nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log, sqrt
from typing import NamedTuple

from ...core.record_type import Record
from .series import Member

MIN_SCATTER = 0.1
"""A series is not held to be more regular than this (10 %)."""

ROUNDNESS_COST, UNUSUAL_COST, INDIVISIBLE_COST = 0.4, 1.5, 1.0
"""Costs: of a bit of roundness that the family's own dimensions do not lack, of another head size or KV count, of what does not divide."""

Points = Sequence[tuple[float, float]]


class Trend(Record):
    """A ratio over size: what is expected of a size, and how far the members scatter about it."""

    points: tuple[tuple[float, float], ...]  # (ln parameters, ln ratio)
    scatter: float

    def expected(self, parameters: int) -> float:
        """The ratio's logarithm."""
        return _interpolate(self.points, log(parameters))

    def at(self, parameters: int) -> Expected:
        """What to expect of a size, with the scatter and the range of the members."""
        values = [y for _, y in self.points]
        return Expected(self.expected(parameters), self.scatter, (min(values), max(values)))


class Expected(NamedTuple):
    """What a ratio should be at a size, in logarithms."""

    value: float
    scatter: float
    span: tuple[float, float]


class Choice(NamedTuple):
    """The numbers that a series has, those of the nearest sizes first."""

    known: tuple[int, ...]
    near: int  # so many of them are those of the two nearest

    @property
    def usual(self) -> tuple[int, ...]:
        """Those of the two nearest."""
        return self.known[: self.near]


class Habits(Record):
    """The habits of a series at the target's size."""

    aspect: Expected  # width / layers
    ffn: Expected  # feed-forward width / width
    heads: Expected  # all heads' width / width
    square: bool  # the heads are together as wide as the stream
    head_dims: Choice
    kv_heads: Choice
    has_kv_heads: bool  # KV heads are counted at all
    multi_head: bool  # as many KV heads as heads
    width_bits: float  # the bits of roundness that its widths lack on average
    ffn_bits: float
    even: bool  # all its depths are even
    multiples_of_8: bool  # width, heads and feed-forward all divide by 8


def learn_habits(members: Sequence[Member], target: int, ffn: str) -> Habits:
    """Learn the habits of a series at a size."""
    ratios = [(x.total, x.letters, x.head_dim) for x in members]
    near = sorted(members, key=lambda x: abs(log(x.total / target)))
    letters = [x.letters for x in near]
    return Habits(
        aspect=trend((n, v["d"] / v["L"]) for n, v, _ in ratios).at(target),
        ffn=trend((n, ffn_width(v, ffn) / v["d"]) for n, v, _ in ratios).at(target),
        heads=trend((n, v["H"] * h / v["d"]) for n, v, h in ratios).at(target),
        square=all(x.letters["H"] * x.head_dim == x.letters["d"] for x in near),
        head_dims=_ordered([x.head_dim for x in near]),
        kv_heads=_ordered([x.kv_heads for x in near]),
        has_kv_heads=any("K" in v for v in letters),
        multi_head=all(x.kv_heads == x.letters["H"] for x in near[:2]),
        width_bits=_mean(odd_bits(v["d"]) for v in letters),
        ffn_bits=_mean(odd_bits(ffn_width(v, ffn)) for v in letters),
        even=all(v["L"] % 2 == 0 for v in letters),
        multiples_of_8=all(divides(8, v["d"], v["H"], ffn_width(v, ffn)) for v in letters),
    )


def ffn_width(letters: dict[str, int], ffn: str) -> int:
    """The feed-forward width, of an expert where that is searched and the member has experts."""
    return letters.get(ffn) or letters.get("F") or letters["Fe"]


def trend(points: Iterable[tuple[int, float]]) -> Trend:
    """A trend over the members; where several have one size, their mean."""
    by_size: dict[float, list[float]] = {}
    for n, ratio in points:
        by_size.setdefault(log(n), []).append(log(ratio))
    made = tuple((x, _mean(ys)) for x, ys in sorted(by_size.items()))
    missed = [y - _interpolate([p for p in made if p[0] != x], x) for x, y in made] if len(made) > 2 else []
    return Trend(points=made, scatter=max(MIN_SCATTER, sqrt(_mean(m * m for m in missed)) if missed else 0.0))


def odd_bits(n: int) -> float:
    """How far a number is from being round: log2 of what is left of it without its powers of two."""
    return log(n // (n & -n)) / log(2)


def divides(n: int, *sizes: int) -> bool:
    """Whether all of them divide by n."""
    return all(x % n == 0 for x in sizes)


def _interpolate(points: Points, x: float) -> float:
    if x <= points[0][0]:
        return points[0][1]
    for (a, low), (b, high) in pairwise(points):
        if x <= b:
            return low + (high - low) * (x - a) / (b - a)
    return points[-1][1]


def _ordered(near: Sequence[int]) -> Choice:
    return Choice(tuple(dict.fromkeys(near)), len(set(near[:2])))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
