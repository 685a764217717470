"""Dequantization of packed weights into torch tensors, by the table of `checkpoint.quantization.dequantizers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...checkpoint.formats.number_arrays import StoredArray
from ...checkpoint.quantization.dequantizers import PackedWeight, iter_dequantized, packed_weights, why_not_dequantized
from ...checkpoint.quantization.packed_tensors import Packing
from ...utils.errors import LlamathError, safe

_OUTPUTS_FIRST = frozenset(("awq", "gptq", "mxfp4"))
"""Kinds whose values are [out, in] also where the model stores the plain matrix transposed (GPT-2's Conv1D, gpt-oss's experts)."""


def reject_unreadable(path: str, packings: Mapping[str, Packing], config: Mapping[str, Any]) -> None:
    """Raise an error that names the first quantization scheme that cannot be dequantized."""
    for x in packed_weights(packings).values():
        if x.kind != "ggml" and (problem := why_not_dequantized(x, config)):
            hint = "use the checkpoint it was quantized from, or a GGUF file"
            raise LlamathError(
                f"{safe(path)}: quantization scheme {safe(x.kind, 40)} ({safe(x.name)}) is not supported: {problem}", hint=hint
            )


def dequantize(
    x: PackedWeight, read: Callable[[str], StoredArray], config: Mapping[str, Any], dtype: torch.dtype, is_transposed: bool = False
) -> Tensor:
    """Return a packed weight in a dtype, as its model stores it: `is_transposed` for matrices that plain files store as [in, out]."""
    shape, pieces = iter_dequantized(x, read, config)
    result, at = torch.empty((prod(shape[:-1]), shape[-1]), dtype=dtype), 0
    for piece in pieces:
        result[at : at + len(piece)] = torch.from_numpy(piece)
        at += len(piece)
    result = result.view(shape)
    return result.mT if is_transposed and x.kind in _OUTPUTS_FIRST else result
