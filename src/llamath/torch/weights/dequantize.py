"""Dequantization of packed weights into torch tensors, by the table of
`checkpoint.quantization.dequantizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...checkpoint.formats.number_arrays import StoredArray
from ...checkpoint.quantization.dequantizers import iter_dequantized
from ...checkpoint.quantization.packed_tensors import PackedWeight


def dequantize(
    x: PackedWeight,
    read: Callable[[str], StoredArray],
    config: Mapping[str, Any],
    dtype: torch.dtype,
    is_transposed: bool = False,
) -> Tensor:
    """Return a packed weight in a dtype, as its model stores it: `is_transposed` for matrices
    that plain files store as [in, out].
    """
    shape, pieces = iter_dequantized(x, read, config)
    result, at = torch.empty((prod(shape[:-1]), shape[-1]), dtype=dtype), 0
    for piece in pieces:
        result[at : at + len(piece)] = torch.from_numpy(piece)
        at += len(piece)
    result = result.view(shape)
    return result.mT if is_transposed and x.is_outputs_first else result
