"""Packed weights of Hugging Face's checkpoints back into plain ones: FP8 with scales, and MXFP4; what else there is, is refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ...checkpoint.quantization.packed_tensors import Packing
from ...core.errors import LlamathError, safe

SCALE_SUFFIXES = {"fp8": (".weight_scale_inv", ".weight_scale", "_scale_inv", "_scale"), "mxfp4": ("_scales",)}
"""Kinds that can be read → how the name of a weight's scales may end."""
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The values of E2M1 without a sign (OCP Microscaling Formats 1.0, section 5.3.3)."""
CHUNK_ELEMENTS = 1 << 20
"""So many numbers are worked out at once."""


class PackedWeight(NamedTuple):
    """What a packed weight is made of."""

    name: str
    values: Tensor
    scales: Tensor
    block: tuple[int, ...] = ()  # rows and columns that share a scale, as the configuration says


def scales_name(packing: Packing, there: Mapping[str, object]) -> str:
    """The name of the scales of a packed weight, empty where it cannot be read."""
    base = packing.weight.removesuffix(".weight")
    names = [base + end if end.startswith(".") else packing.weight + end for end in SCALE_SUFFIXES.get(packing.kind, ())]
    return next((name for name in names if name in there), "") if packing.shape is not None else ""


def reject_unreadable(place: str, packings: Mapping[str, Packing], there: Mapping[str, object]) -> None:
    """An error that names the first kind of packing here that cannot be read."""
    for x in packings.values():
        if x.role == "values" and x.kind != "ggml" and not scales_name(x, there):
            hint = "take the checkpoint that it was made from, or a GGUF file of it"
            raise LlamathError(f"{safe(place)} is quantised as {x.kind} ({safe(x.weight)}), which is not computed with here", hint=hint)


def dequantize(parts: PackedWeight, kind: str, dtype: torch.dtype) -> Tensor:
    """The weight that these parts stand for."""
    if kind == "mxfp4":
        return torch.cat([x.to(dtype) for x in _dequantize_mxfp4(parts)]).mT
    return torch.cat([x.to(dtype) for x in _dequantize_fp8(parts)])


def _dequantize_fp8(parts: PackedWeight) -> Iterator[Tensor]:
    """Each value times its scale, some rows at a time: a scale for all, for a row, or for a block of rows and columns."""
    values, factors = parts.values, _e8m0_to_float(parts.scales) if parts.scales.dtype == torch.uint8 else parts.scales.float()
    if factors.numel() == 1:
        factors = factors.reshape((1,) * values.dim())
    if factors.dim() != values.dim():
        raise _shape_error(parts)
    for axis, (n, of) in enumerate(zip(values.shape, factors.shape, strict=True)):
        if of not in (1, n):
            factors = factors.repeat_interleave(_block_length(parts, axis), axis).narrow(axis, 0, n)
    step = max(1, CHUNK_ELEMENTS * len(values) // values.numel())
    for i in range(0, len(values), step):
        yield values[i : i + step].float() * (factors if len(factors) == 1 else factors[i : i + step])


def _block_length(parts: PackedWeight, axis: int) -> int:
    """How many numbers along an axis share a scale."""
    n, of = parts.values.shape[axis], parts.scales.shape[axis]
    said = parts.block[axis - parts.values.dim()] if len(parts.block) >= parts.values.dim() - axis else 0
    if said and -(-n // said) == of:
        return said
    if n % of:
        raise _shape_error(parts)
    return n // of


def _shape_error(parts: PackedWeight) -> LlamathError:
    shapes = f"{list(parts.values.shape)}, and its scales are {list(parts.scales.shape)}"
    return LlamathError(f"{safe(parts.name)} is {shapes}: nothing says which of them belong together")


def _dequantize_mxfp4(parts: PackedWeight) -> Iterator[Tensor]:
    """Two values a byte, the lower half first, and a power of two for each 32: `[E, out, blocks, 16]` → `[E, out, in]`.

    The experts of gpt-oss are packed by what they give, and kept plain the other way round, `[E, in, out]`.
    """
    signed = torch.tensor([*E2M1_VALUES, *(-x for x in E2M1_VALUES)])
    for values, exponents in zip(parts.values, parts.scales, strict=True):
        numbers = torch.stack((signed[(values & 15).int()], signed[(values >> 4).int()]), -1).flatten(-2)
        yield (numbers * _e8m0_to_float(exponents)[..., None]).flatten(-2)[None]


def _e8m0_to_float(exponents: Tensor) -> Tensor:
    """Bytes of E8M0 as the powers of two that they stand for."""
    return torch.ldexp(torch.ones(exponents.shape), exponents.int() - 127)
