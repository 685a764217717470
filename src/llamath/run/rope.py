"""Rotary positions: the angle by which each pair of a head's numbers turns at each position, for every kind of `Rope`."""

from __future__ import annotations

from functools import lru_cache, singledispatch
from math import ceil, floor, log, log2, pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.positions import DynamicRope, LinearRope, Llama3Rope, LongRope, ProportionalRope, QwenDynamicRope, Rope, YarnRope

LENGTH_DEPENDENT = (DynamicRope, QwenDynamicRope, LongRope)
"""The kinds whose angles depend on how long the sequence is; a key keeps the angle that it had when it was read, as in transformers."""


class RopeCosSin(NamedTuple):
    """Cosines and sines of some positions' angles, `(…, T, 1, dim / 2)`, and which numbers of a head are pairs."""

    cos: Tensor
    sin: Tensor
    interleaved: bool


def apply_rope(x: Tensor, turn: RopeCosSin | None) -> Tensor:
    """Each pair (a, b) of x `(B, T, H, h)` becomes (a cos − b sin, b cos + a sin), in float32; what is past the last pair stays."""
    if turn is None:
        return x
    dim = 2 * turn.cos.shape[-1]
    part, rest = (x, None) if dim == x.shape[-1] else (x[..., :dim], x[..., dim:])
    pairs = part.float()
    a, b = pairs.unflatten(-1, (-1, 2)).unbind(-1) if turn.interleaved else pairs.chunk(2, -1)
    both = (a * turn.cos - b * turn.sin, b * turn.cos + a * turn.sin)
    turned = (torch.stack(both, -1).flatten(-2) if turn.interleaved else torch.cat(both, -1)).to(x.dtype)
    return turned if rest is None else torch.cat((turned, rest), -1)


def cos_sin(rope: Rope, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every pair's angle at these positions in a sequence of this length, `(…, dim / 2)`."""
    speeds, scale = _cached_frequencies(rope, length if isinstance(rope, LENGTH_DEPENDENT) else 0)
    angle = positions[..., None].float() * speeds.to(positions.device)
    return angle.cos() * scale, angle.sin() * scale


@singledispatch
def inverse_frequencies(rope: Rope, length: int) -> tuple[Tensor, float]:
    """By how much each pair turns from one position to the next, and what cosines and sines are multiplied by."""
    return base_frequencies(rope.theta, rope.dim), 1.0


@lru_cache(maxsize=64)
def _cached_frequencies(rope: Rope, length: int) -> tuple[Tensor, float]:
    with torch.inference_mode(False), torch.device("cpu"):
        return inverse_frequencies(rope, length)


def base_frequencies(theta: float, dim: int, over: int = 0) -> Tensor:
    """θ^(−2i / over) for the dim / 2 pairs; `over` is dim unless it is said (Su et al. 2021, arXiv:2104.09864)."""
    return 1.0 / theta ** (torch.arange(0, dim, 2).float() / (over or dim))


@inverse_frequencies.register
def _(rope: LinearRope, length: int) -> tuple[Tensor, float]:
    return base_frequencies(rope.theta, rope.dim) / rope.factor, 1.0


@inverse_frequencies.register
def _(rope: ProportionalRope, length: int) -> tuple[Tensor, float]:
    still = torch.zeros((rope.head_dim - rope.dim) // 2)
    return torch.cat((base_frequencies(rope.theta, rope.dim, rope.head_dim), still)) / rope.factor, 1.0


@inverse_frequencies.register
def _(rope: DynamicRope, length: int) -> tuple[Tensor, float]:
    stretch = rope.factor * max(length, rope.original_context) / rope.original_context - (rope.factor - 1)
    return base_frequencies(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim), 1.0


@inverse_frequencies.register
def _(rope: QwenDynamicRope, length: int) -> tuple[Tensor, float]:
    stretch = 2 ** ceil(log2(length / rope.original_context) + 1) - 1 if length > rope.original_context else 1
    return base_frequencies(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim), 1.0


@inverse_frequencies.register
def _(rope: Llama3Rope, length: int) -> tuple[Tensor, float]:
    speeds = base_frequencies(rope.theta, rope.dim)
    kept = rope.kept_share(2 * pi / speeds).clamp(0, 1)
    return (1 - kept) * speeds / rope.factor + kept * speeds, 1.0


@inverse_frequencies.register
def _(rope: YarnRope, length: int) -> tuple[Tensor, float]:
    speeds = base_frequencies(rope.theta, rope.dim)
    low, high = (
        rope.dim * log(rope.original_context / (turns * 2 * pi)) / (2 * log(rope.theta)) for turns in (rope.beta_fast, rope.beta_slow)
    )
    low, high = (floor(low), ceil(high)) if rope.truncate else (low, high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    slowed = ((torch.arange(rope.dim // 2).float() - low) / (high - low or 0.001)).clamp(0, 1)
    return speeds / rope.factor * slowed + speeds * (1 - slowed), _yarn_attention_factor(rope)


def _yarn_attention_factor(rope: YarnRope) -> float:
    """By how much longer cosines and sines are, so that attention stays as sharp over more positions."""

    def grown(by: float) -> float:
        return 0.1 * by * log(rope.factor) + 1.0 if rope.factor > 1 else 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return grown(rope.mscale) / grown(rope.mscale_all_dim)
    return grown(1.0)


@inverse_frequencies.register
def _(rope: LongRope, length: int) -> tuple[Tensor, float]:
    long = length > rope.original_context
    factor = rope.context / rope.original_context if rope.factor is None else rope.factor
    scale = sqrt(1 + log(factor) / log(rope.original_context)) if factor > 1 else 1.0
    if rope.mscales is not None:
        scale = rope.mscales[long]
    if rope.attention_factor is not None:
        scale = rope.attention_factor
    return base_frequencies(rope.theta, rope.dim) / torch.tensor(rope.long_factor if long else rope.short_factor), scale
