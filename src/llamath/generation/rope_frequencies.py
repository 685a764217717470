"""`rope_frequencies`: the angle of each rotary pair per position, without torch, rounded to
float32 as torch does after each step.
"""

from __future__ import annotations

from functools import singledispatch
from math import ceil, floor, inf, log, log2, pi
from struct import pack, unpack
from typing import NamedTuple

from ..core.positions import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    ProportionalRope,
    QwenDynamicRope,
    Rope,
    YarnRope,
)


class Frequencies(NamedTuple):
    """The angle of each pair per position, and the factors of cosines and of sines."""

    angles: tuple[float, ...]
    factor: float
    sin_sign: float


def rope_frequencies(rope: Rope, length: int = 0) -> Frequencies:
    """Return the frequencies for a sequence of this length."""
    angles, factor = _frequencies(rope, length)
    return Frequencies(tuple(angles), factor, -1.0 if rope.reverse else 1.0)


def _round(x: float) -> float:
    """Round to float32; what is too large becomes infinite, as in torch."""
    try:
        result: float = unpack("f", pack("f", x))[0]
    except OverflowError:
        return inf if x > 0 else -inf
    return result


def _base(theta: float, dim: int, denominator: int = 0) -> list[float]:
    return [
        _round(1.0 / _round(theta ** _round(i / (denominator or dim)))) for i in range(0, dim, 2)
    ]


@singledispatch
def _frequencies(rope: Rope, length: int) -> tuple[list[float], float]:  # noqa: ARG001
    if type(rope) is not Rope:
        raise NotImplementedError(type(rope).__name__)
    return _base(rope.theta, rope.dim), 1.0


@_frequencies.register
def _(rope: LinearRope, length: int) -> tuple[list[float], float]:  # noqa: ARG001
    return [_round(x / rope.factor) for x in _base(rope.theta, rope.dim)], 1.0


@_frequencies.register
def _(rope: ProportionalRope, length: int) -> tuple[list[float], float]:  # noqa: ARG001
    still = [0.0] * ((rope.head_dim - rope.dim) // 2)
    return [
        _round(x / rope.factor) for x in (*_base(rope.theta, rope.dim, rope.head_dim), *still)
    ], 1.0


@_frequencies.register
def _(rope: DynamicRope, length: int) -> tuple[list[float], float]:
    stretch = max(
        1.0,
        rope.factor * max(length, rope.original_context) / rope.original_context
        - (rope.factor - 1),
    )
    return _base(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim), 1.0


@_frequencies.register
def _(rope: QwenDynamicRope, length: int) -> tuple[list[float], float]:
    stretch = (
        2 ** ceil(log2(length / rope.original_context) + 1) - 1
        if length > rope.original_context
        else 1
    )
    return _base(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim), 1.0


@_frequencies.register
def _(rope: Llama3Rope, length: int) -> tuple[list[float], float]:  # noqa: ARG001
    kept = [
        (x, min(1.0, max(0.0, rope.kept_share(2 * pi / x)))) for x in _base(rope.theta, rope.dim)
    ]
    return [_round((1 - share) * x / rope.factor + share * x) for x, share in kept], 1.0


@_frequencies.register
def _(rope: YarnRope, length: int) -> tuple[list[float], float]:  # noqa: ARG001
    low, high = (
        rope.dim * log(rope.original_context / (rotations * 2 * pi)) / (2 * log(rope.theta))
        for rotations in (rope.beta_fast, rope.beta_slow)
    )
    low, high = (floor(low), ceil(high)) if rope.truncate else (low, high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    shares = [min(1.0, max(0.0, (i - low) / (high - low or 0.001))) for i in range(rope.dim // 2)]
    base = _base(rope.theta, rope.dim)
    return [
        _round(x / rope.factor * share + x * (1 - share))
        for x, share in zip(base, shares, strict=True)
    ], rope.angle_factor


@_frequencies.register
def _(rope: LongRope, length: int) -> tuple[list[float], float]:
    is_long = length > rope.original_context
    scale = rope.default_angle_factor if rope.mscales is None else rope.mscales[is_long]
    if rope.attention_factor is not None:
        scale = rope.attention_factor
    divisors = rope.long_factor if is_long else rope.short_factor
    return [
        _round(x / _round(y)) for x, y in zip(_base(rope.theta, rope.dim), divisors, strict=True)
    ], scale
