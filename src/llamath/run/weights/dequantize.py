"""Dequantization of Hugging Face checkpoints: FP8 with scales, and MXFP4; other schemes are rejected by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ...checkpoint.quantization.packed_tensors import Packing
from ...checkpoint.quantization.schemes import SCHEME_BY_NAME
from ...core.errors import LlamathError, safe

_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Absolute values of E2M1 (OCP Microscaling Formats 1.0, section 5.3.3)."""
CHUNK_ELEMENTS = 1 << 20
"""Elements dequantized at once."""


class PackedWeight(NamedTuple):
    """The stored tensors of a quantized weight."""

    name: str
    values: Tensor
    scales: Tensor
    block: tuple[int, ...] = ()  # rows and columns that share a scale, from the config


def scales_name(packing: Packing, tensors: Mapping[str, object]) -> str:
    """Return the name of a quantized weight's scales; empty if the weight cannot be dequantized."""
    base = packing.weight.removesuffix(".weight")
    suffixes = SCHEME_BY_NAME[packing.kind].scale_suffixes if packing.kind in SCHEME_BY_NAME else ()
    names = [base + end if end.startswith(".") else packing.weight + end for end in suffixes]
    return next((name for name in names if name in tensors), "") if packing.shape is not None else ""


def reject_unreadable(path: str, packings: Mapping[str, Packing], tensors: Mapping[str, object]) -> None:
    """Raise an error that names the first quantization scheme that cannot be dequantized."""
    for x in packings.values():
        if x.role == "values" and x.kind != "ggml" and not scales_name(x, tensors):
            hint = "use the checkpoint it was quantized from, or a GGUF file"
            raise LlamathError(f"{safe(path)}: quantization scheme {x.kind} ({safe(x.weight)}) is not supported", hint=hint)


def dequantize(parts: PackedWeight, kind: str, dtype: torch.dtype) -> Tensor:
    """Return the dequantized weight."""
    if kind == "mxfp4":
        return torch.cat([x.to(dtype) for x in _dequantize_mxfp4(parts)]).mT
    return torch.cat([x.to(dtype) for x in _dequantize_fp8(parts)])


def _dequantize_fp8(parts: PackedWeight) -> Iterator[Tensor]:
    """Multiply values by their scales, some rows at a time; a scale covers the tensor, a row, or a block of rows and columns."""
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
    """Return the number of elements along an axis that share a scale."""
    n, of = parts.values.shape[axis], parts.scales.shape[axis]
    configured = parts.block[axis - parts.values.dim()] if len(parts.block) >= parts.values.dim() - axis else 0
    if configured and -(-n // configured) == of:
        return configured
    if n % of:
        raise _shape_error(parts)
    return n // of


def _shape_error(parts: PackedWeight) -> LlamathError:
    shapes = f"{list(parts.values.shape)} and scales of shape {list(parts.scales.shape)}"
    return LlamathError(f"{safe(parts.name)} has values of shape {shapes}, which do not match")


def _dequantize_mxfp4(parts: PackedWeight) -> Iterator[Tensor]:
    """Dequantize two values per byte, low half first, with a power of two per 32 values: `[E, out, blocks, 16]` → `[E, out, in]`.

    gpt-oss stores quantized experts with outputs first, and plain ones as `[E, in, out]`.
    """
    signed = torch.tensor([*_E2M1_VALUES, *(-x for x in _E2M1_VALUES)])
    for values, exponents in zip(parts.values, parts.scales, strict=True):
        mantissas = torch.stack((signed[(values & 15).int()], signed[(values >> 4).int()]), -1).flatten(-2)
        yield (mantissas * _e8m0_to_float(exponents)[..., None]).flatten(-2)[None]


def _e8m0_to_float(exponents: Tensor) -> Tensor:
    """Convert E8M0 bytes to powers of two."""
    return torch.ldexp(torch.ones(exponents.shape), exponents.int() - 127)
