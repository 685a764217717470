"""`Habits`: the typical proportions of a series at a given size, and the cost of deviating from
them.

The aspect ratio, the FFN ratio and heads × head_dim / width are interpolated linearly between
published sizes on logarithmic scales, and constant beyond. The weight of a deviation follows from a
leave-one-out prediction of the series' own members. The distance is a sum of costs, each ½
(deviation / scatter)² or a fixed number; it only orders candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log, sqrt
from typing import NamedTuple

from ....utils.record_type import Record
from .series import Member

_MIN_SCATTER = 0.1
"""The smallest assumed scatter of a series (10%)."""

ROUNDNESS_COST, UNUSUAL_COST, INDIVISIBLE_COST = 0.4, 1.5, 1.0
"""Costs of a missing bit of roundness, of a head size or KV head count that the series does not
have, and of an indivisible dimension."""

Points = Sequence[tuple[float, float]]


class _Trend(Record):
    """A ratio as a function of model size, with the scatter of the members around it."""

    points: tuple[tuple[float, float], ...]  # (ln parameters, ln ratio)
    scatter: float

    def expected(self, parameters: int) -> float:
        """Return the logarithm of the expected ratio."""
        return _interpolate(self.points, log(parameters))

    def at(self, parameters: int) -> _Expected:
        """Return the expected ratio at a size, with the scatter and the range of the members."""
        values = [y for _, y in self.points]
        return _Expected(self.expected(parameters), self.scatter, (min(values), max(values)))


class _Expected(NamedTuple):
    """The expected value of a ratio at a size, in logarithms."""

    value: float
    scatter: float
    span: tuple[float, float]


class Choice(NamedTuple):
    """The values that a series uses, those of the nearest sizes first."""

    known: tuple[int, ...]
    near: int  # the first `near` values belong to the two nearest sizes

    @property
    def usual(self) -> tuple[int, ...]:
        """The values of the two nearest sizes."""
        return self.known[: self.near]


class Habits(Record):
    """The habits of a series at the target's size."""

    aspect: _Expected  # width / layers
    ffn: _Expected  # feed-forward width / width
    heads: _Expected  # heads × head_dim / width
    square: bool  # heads × head_dim = width
    head_dims: Choice
    kv_heads: Choice
    has_kv_heads: bool  # the config has a number of KV heads
    multi_head: bool  # as many KV heads as heads
    width_bits: float  # the most odd_bits of the widths of the two nearest sizes
    ffn_bits: float
    even: bool  # all depths are even
    multiples_of_8: bool  # width, heads and FFN width are all multiples of 8


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
        width_bits=max(odd_bits(v["d"]) for v in letters[:2]),
        ffn_bits=max(odd_bits(ffn_width(v, ffn)) for v in letters[:2]),
        even=all(v["L"] % 2 == 0 for v in letters),
        multiples_of_8=all(divides(8, v["d"], v["H"], ffn_width(v, ffn)) for v in letters),
    )


def ffn_width(letters: dict[str, int], ffn: str) -> int:
    """Return the FFN width, of one expert if that is searched and the member has experts."""
    return letters.get(ffn) or letters.get("F") or letters["Fe"]


def trend(points: Iterable[tuple[int, float]]) -> _Trend:
    """Fit the trend of the members; members of the same size are averaged."""
    by_size: dict[float, list[float]] = {}
    for n, ratio in points:
        by_size.setdefault(log(n), []).append(log(ratio))
    averages = tuple((x, _mean(ys)) for x, ys in sorted(by_size.items()))
    errors = (
        [y - _interpolate([p for p in averages if p[0] != x], x) for x, y in averages]
        if len(averages) > 2
        else []
    )
    return _Trend(
        points=averages,
        scatter=max(_MIN_SCATTER, sqrt(_mean(m * m for m in errors)) if errors else 0.0),
    )


def odd_bits(n: int) -> float:
    """Return log2 of the odd part of a number: 0 for a power of two, larger for less round
    numbers.
    """
    return log(n // (n & -n)) / log(2)


def divides(n: int, *sizes: int) -> bool:
    """Return whether n divides all sizes."""
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
    numbers = list(values)
    return sum(numbers) / len(numbers)
