"""Rotary position embeddings: the rotation of each pair of a head's channels at each position,
for every kind of `Rope`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.positions import AxialRope, Rope
from ..generation.rope_frequencies import rope_frequencies


class RopeCosSin(NamedTuple):
    """Cosines and sines of the angles, `(…, T, 1, dim / 2)`, and whether pairs are adjacent
    channels or halves of a head.
    """

    cos: Tensor
    sin: Tensor
    interleaved: bool


def apply_rope(x: Tensor, rotation: RopeCosSin | None) -> Tensor:
    """Rotate each pair (a, b) of x `(B, T, H, h)` to (a cos − b sin, b cos + a sin), in float32;
    channels after the last pair stay.
    """
    if rotation is None:
        return x
    dim = 2 * rotation.cos.shape[-1]
    rotary, rest = (x, None) if dim == x.shape[-1] else (x[..., :dim], x[..., dim:])
    rotary = rotary.float()
    a, b = rotary.unflatten(-1, (-1, 2)).unbind(-1) if rotation.interleaved else rotary.chunk(2, -1)
    pair = (a * rotation.cos - b * rotation.sin, b * rotation.cos + a * rotation.sin)
    rotated = (
        torch.stack(pair, -1).flatten(-2) if rotation.interleaved else torch.cat(pair, -1)
    ).to(x.dtype)
    return rotated if rest is None else torch.cat((rotated, rest), -1)


def cos_sin(rope: Rope, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of each pair's angle at these positions, `(…, dim / 2)`; the
    length is that of `Rope.angle_length`.
    """
    frequencies, scale = _cached_frequencies(rope, length)
    angle = positions[..., None].float() * frequencies.to(positions.device)
    return angle.cos() * scale, angle.sin() * (-scale if rope.reverse else scale)


def axial_cos_sin(
    rope: AxialRope, rows: int, columns: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of each pair's angle for every patch of a grid, row by row,
    `(rows · columns, dim / 2)`.
    """
    if rope.by_halves or rope.alternating:
        of_rows = of_columns = _base_frequencies(rope.theta, rope.dim // 2).to(device)
    else:
        frequencies = _base_frequencies(rope.theta, rope.dim).to(device)
        of_rows, of_columns = frequencies[0::2], frequencies[1::2]
    row = (torch.arange(rows, device=device) + rope.offset).repeat_interleave(columns)[
        :, None
    ] * of_rows
    column = (torch.arange(columns, device=device) + rope.offset).repeat(rows)[:, None] * of_columns
    parts = (column, row) if rope.columns_first else (row, column)
    angle = torch.stack(parts, -1).flatten(-2) if rope.alternating else torch.cat(parts, -1)
    angle = torch.nn.functional.pad(angle, (rope.still, 0))
    return angle.cos(), angle.sin()


@lru_cache(maxsize=64)
def _cached_frequencies(rope: Rope, length: int) -> tuple[Tensor, float]:
    with torch.inference_mode(False), torch.device("cpu"):
        found = rope_frequencies(rope, length)
        return torch.tensor(found.angles), found.factor


def _base_frequencies(theta: float, dim: int, denominator: int = 0) -> Tensor:
    """θ^(−2i / denominator) for dim / 2 pairs; the denominator is dim by default (Su et al.
    2021, arXiv:2104.09864).
    """
    return 1.0 / theta ** (torch.arange(0, dim, 2).float() / (denominator or dim))
