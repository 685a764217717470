"""Rotary position embeddings: the rotation of each pair of a head's channels at each position, for every kind of `Rope`."""

from __future__ import annotations

from functools import lru_cache, singledispatch
from math import ceil, floor, log, log2, pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.positions import AxialRope, DynamicRope, LinearRope, Llama3Rope, LongRope, ProportionalRope, QwenDynamicRope, Rope, YarnRope

LENGTH_DEPENDENT = (DynamicRope, QwenDynamicRope, LongRope)
"""Kinds whose angles depend on the sequence length; a cached key keeps the angle it was computed with, as in transformers."""


class RopeCosSin(NamedTuple):
    """Cosines and sines of the angles, `(…, T, 1, dim / 2)`, and whether pairs are adjacent channels or halves of a head."""

    cos: Tensor
    sin: Tensor
    interleaved: bool


def apply_rope(x: Tensor, rotation: RopeCosSin | None) -> Tensor:
    """Rotate each pair (a, b) of x `(B, T, H, h)` to (a cos − b sin, b cos + a sin), in float32; channels after the last pair stay."""
    if rotation is None:
        return x
    dim = 2 * rotation.cos.shape[-1]
    rotary, rest = (x, None) if dim == x.shape[-1] else (x[..., :dim], x[..., dim:])
    rotary = rotary.float()
    a, b = rotary.unflatten(-1, (-1, 2)).unbind(-1) if rotation.interleaved else rotary.chunk(2, -1)
    pair = (a * rotation.cos - b * rotation.sin, b * rotation.cos + a * rotation.sin)
    rotated = (torch.stack(pair, -1).flatten(-2) if rotation.interleaved else torch.cat(pair, -1)).to(x.dtype)
    return rotated if rest is None else torch.cat((rotated, rest), -1)


def cos_sin(rope: Rope, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of each pair's angle at these positions in a sequence of this length, `(…, dim / 2)`."""
    frequencies, scale = _cached_frequencies(rope, length if isinstance(rope, LENGTH_DEPENDENT) else 0)
    angle = positions[..., None].float() * frequencies.to(positions.device)
    return angle.cos() * scale, angle.sin() * (-scale if rope.reverse else scale)


def axial_cos_sin(rope: AxialRope, rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of each pair's angle for every patch of a grid, row by row, `(rows · columns, dim / 2)`."""
    if rope.by_halves or rope.alternating:
        of_rows = of_columns = _base_frequencies(rope.theta, rope.dim // 2).to(device)
    else:
        frequencies = _base_frequencies(rope.theta, rope.dim).to(device)
        of_rows, of_columns = frequencies[0::2], frequencies[1::2]
    row = (torch.arange(rows, device=device) + rope.offset).repeat_interleave(columns)[:, None] * of_rows
    column = (torch.arange(columns, device=device) + rope.offset).repeat(rows)[:, None] * of_columns
    parts = (column, row) if rope.columns_first else (row, column)
    angle = torch.stack(parts, -1).flatten(-2) if rope.alternating else torch.cat(parts, -1)
    angle = torch.nn.functional.pad(angle, (rope.still, 0, 0, rope.unrotated))
    return angle.cos(), angle.sin()


@singledispatch
def _inverse_frequencies(rope: Rope, length: int) -> tuple[Tensor, float]:
    """Return the angle of each pair per position, and the factor on cosines and sines."""
    return _base_frequencies(rope.theta, rope.dim), 1.0


@lru_cache(maxsize=64)
def _cached_frequencies(rope: Rope, length: int) -> tuple[Tensor, float]:
    with torch.inference_mode(False), torch.device("cpu"):
        return _inverse_frequencies(rope, length)


def _base_frequencies(theta: float, dim: int, denominator: int = 0) -> Tensor:
    """θ^(−2i / denominator) for dim / 2 pairs; the denominator is dim by default (Su et al. 2021, arXiv:2104.09864)."""
    return 1.0 / theta ** (torch.arange(0, dim, 2).float() / (denominator or dim))


@_inverse_frequencies.register
def _(rope: LinearRope, length: int) -> tuple[Tensor, float]:
    return _base_frequencies(rope.theta, rope.dim) / rope.factor, 1.0


@_inverse_frequencies.register
def _(rope: ProportionalRope, length: int) -> tuple[Tensor, float]:
    unrotated = torch.zeros((rope.head_dim - rope.dim) // 2)
    return torch.cat((_base_frequencies(rope.theta, rope.dim, rope.head_dim), unrotated)) / rope.factor, 1.0


@_inverse_frequencies.register
def _(rope: DynamicRope, length: int) -> tuple[Tensor, float]:
    stretch = rope.factor * max(length, rope.original_context) / rope.original_context - (rope.factor - 1)
    return _base_frequencies(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim), 1.0


@_inverse_frequencies.register
def _(rope: QwenDynamicRope, length: int) -> tuple[Tensor, float]:
    stretch = 2 ** ceil(log2(length / rope.original_context) + 1) - 1 if length > rope.original_context else 1
    return _base_frequencies(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim), 1.0


@_inverse_frequencies.register
def _(rope: Llama3Rope, length: int) -> tuple[Tensor, float]:
    frequencies = _base_frequencies(rope.theta, rope.dim)
    kept = rope.kept_share(2 * pi / frequencies).clamp(0, 1)
    return (1 - kept) * frequencies / rope.factor + kept * frequencies, 1.0


@_inverse_frequencies.register
def _(rope: YarnRope, length: int) -> tuple[Tensor, float]:
    frequencies = _base_frequencies(rope.theta, rope.dim)
    low, high = (
        rope.dim * log(rope.original_context / (rotations * 2 * pi)) / (2 * log(rope.theta))
        for rotations in (rope.beta_fast, rope.beta_slow)
    )
    low, high = (floor(low), ceil(high)) if rope.truncate else (low, high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    interpolated = ((torch.arange(rope.dim // 2).float() - low) / (high - low or 0.001)).clamp(0, 1)
    return frequencies / rope.factor * interpolated + frequencies * (1 - interpolated), _yarn_attention_factor(rope)


def _yarn_attention_factor(rope: YarnRope) -> float:
    """Factor on cosines and sines that keeps attention equally sharp over a longer context."""

    def mscale(weight: float) -> float:
        return 0.1 * weight * log(rope.factor) + 1.0 if rope.factor > 1 else 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return mscale(rope.mscale) / mscale(rope.mscale_all_dim)
    return mscale(1.0)


@_inverse_frequencies.register
def _(rope: LongRope, length: int) -> tuple[Tensor, float]:
    long = length > rope.original_context
    factor = rope.context / rope.original_context if rope.factor is None else rope.factor
    scale = sqrt(1 + log(factor) / log(rope.original_context)) if factor > 1 else 1.0
    if rope.mscales is not None:
        scale = rope.mscales[long]
    if rope.attention_factor is not None:
        scale = rope.attention_factor
    return _base_frequencies(rope.theta, rope.dim) / torch.tensor(rope.long_factor if long else rope.short_factor), scale
