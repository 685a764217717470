"""Dequantization of ggml's block types to float32: 32 or 256 values share their scales (the structs of ggml-common.h).

Each function takes the little-endian bytes of blocks, `[blocks, bytes]`, and returns `[blocks, values]`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...checkpoint.formats.dtypes import DTYPES


def dequantize_blocks(data: Tensor, kind: str) -> Tensor:
    """Return the values of these blocks, flat."""
    if kind not in DEQUANTIZERS:
        raise KeyError(kind)
    return DEQUANTIZERS[kind](data.reshape(-1, DTYPES[kind].bytes)).flatten()


def _float16(x: Tensor) -> Tensor:
    """Interpret two bytes per row as float16, `[blocks, 1]`."""
    return x.contiguous().view(torch.float16).float()


def _nibbles(x: Tensor) -> Tensor:
    """Return the low halves of all bytes, then the high halves."""
    return torch.cat((x & 15, x >> 4), -1)


def _bits(x: Tensor) -> Tensor:
    """Return each bit of each byte, lowest first: `[…, n]` → `[…, 8·n]`."""
    return ((x.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(-2)


def q8_0(x: Tensor) -> Tensor:
    """A scale and 32 signed bytes."""
    return _float16(x[:, :2]) * x[:, 2:].contiguous().view(torch.int8).float()


def q4_0(x: Tensor) -> Tensor:
    """A scale and 32 values of 4 bits with zero point 8."""
    return _float16(x[:, :2]) * (_nibbles(x[:, 2:]).float() - 8)


def q4_1(x: Tensor) -> Tensor:
    """A scale, a minimum, and 32 values of 4 bits."""
    return _float16(x[:, :2]) * _nibbles(x[:, 4:]).float() + _float16(x[:, 2:4])


def q5_0(x: Tensor) -> Tensor:
    """q4_0 with a fifth bit of each value stored separately, and zero point 16."""
    return _float16(x[:, :2]) * ((_nibbles(x[:, 6:]) | (_bits(x[:, 2:6]) << 4)).float() - 16)


def q5_1(x: Tensor) -> Tensor:
    """q4_1 with a fifth bit of each value stored separately."""
    return _float16(x[:, :2]) * (_nibbles(x[:, 8:]) | (_bits(x[:, 4:8]) << 4)).float() + _float16(x[:, 2:4])


def _six_bit_scales(x: Tensor) -> tuple[Tensor, Tensor]:
    """Unpack twelve bytes to eight scales and eight minimums of 6 bits: the first four whole, the last four in two pieces."""
    first, second, third = x[:, :4], x[:, 4:8], x[:, 8:]
    scale = torch.cat((first & 63, (third & 15) | ((first >> 6) << 4)), -1)
    minimum = torch.cat((second & 63, (third >> 4) | ((second >> 6) << 4)), -1)
    return scale.float(), minimum.float()


def _affine(x: Tensor, values: Tensor) -> Tensor:
    """Dequantize 256 values in eight groups, whose scales and minimums are quantized with the block's own scales."""
    scale, minimum = _six_bit_scales(x[:, 4:16])
    scale, minimum = _float16(x[:, :2]) * scale, _float16(x[:, 2:4]) * minimum
    return (scale.unsqueeze(-1) * values - minimum.unsqueeze(-1)).flatten(1)


def _quarters(x: Tensor) -> Tensor:
    """Unpack 128 bytes to eight groups of 32 values: the low halves of 32 bytes are one group, the high halves the next."""
    return torch.stack((x.view(-1, 4, 32) & 15, x.view(-1, 4, 32) >> 4), 2).view(-1, 8, 32)


def q4_k(x: Tensor) -> Tensor:
    """Eight groups of 32 values of 4 bits."""
    return _affine(x, _quarters(x[:, 16:].contiguous()).float())


def _q5_k(x: Tensor) -> Tensor:
    """q4_k with bit g of 32 more bytes as the fifth bit of group g."""
    fifth = ((x[:, 16:48].unsqueeze(1) >> torch.arange(8, dtype=torch.uint8).view(1, 8, 1)) & 1) << 4
    return _affine(x, (_quarters(x[:, 48:].contiguous()) | fifth).float())


def q6_k(x: Tensor) -> Tensor:
    """Sixteen groups of 16 values of 6 bits with zero point 32; the low four bits and the high two are stored separately."""
    low, high = x[:, :128].reshape(-1, 2, 64), x[:, 128:192].reshape(-1, 2, 1, 32)
    upper = (high >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)) & 3
    values = _nibbles(low).view(-1, 2, 4, 32) | (upper << 4)
    scale = _float16(x[:, 208:]) * x[:, 192:208].contiguous().view(torch.int8).float()
    return (scale.unsqueeze(-1) * (values.reshape(-1, 16, 16).float() - 32)).flatten(1)


DEQUANTIZERS: dict[str, Callable[[Tensor], Tensor]] = {
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q4_K": q4_k,
    "Q5_K": _q5_k,
    "Q6_K": q6_k,
}
"""The supported block types, by ggml's names."""

_FLOAT16_OFFSETS = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Offsets of the float16 numbers in a block of each type; all else are single bytes."""


def to_little_endian(data: Tensor, kind: str) -> Tensor:
    """Convert blocks of a big-endian file, `[blocks, bytes]`, to little-endian."""
    swapped = data.clone()
    for at in _FLOAT16_OFFSETS.get(kind, ()):
        swapped[:, at : at + 2] = data[:, at : at + 2].flip(1)
    return swapped
