"""Write tests/golden/aqlm_values.json: small matrices as the package aqlm stores them, and the
values that it reads. Needs aqlm and torch, no GPU.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

os.environ["AQ_USE_JIT"] = "0"
from aqlm import QuantizedLinear
from aqlm.utils import _dequantize_weight, pack_int_data, unpack_int_data

OUTPUT = Path(__file__).parents[1] / "tests" / "golden" / "aqlm_values.json"
SCHEMES = {
    "1x6": (1, 6, 1, 8),
    "2x4": (2, 4, 1, 8),
    "3x3 g4x2": (3, 3, 4, 2),
    "1x10": (1, 10, 1, 8),
}
"""Codebooks, their bits, and rows and columns of a group."""


def stored(x: torch.Tensor) -> list[Any]:
    return [
        str(x.dtype).removeprefix("torch."),
        list(x.shape),
        x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex(),
    ]


def matrix(count: int, bits: int, rows: int, columns: int) -> dict[str, Any]:
    """Return a layer of 8 outputs and 16 inputs with random codes, and its values."""
    generator = torch.Generator().manual_seed(bits)
    layer = QuantizedLinear(16, 8, columns, rows, count, bits, bias=False, dtype=torch.float16)
    codes = torch.randint(0, 1 << bits, layer.codes.shape, generator=generator)
    layer.codes.data = pack_int_data(codes, bits)
    for x in (layer.codebooks, layer.scales):
        x.data = torch.randn(x.shape, generator=generator).half()
    values = _dequantize_weight(
        unpack_int_data(layer.codes, bits), layer.codebooks.float(), layer.scales.float()
    )
    config = {
        "quant_method": "aqlm",
        "num_codebooks": count,
        "nbits_per_codebook": bits,
        "out_group_size": rows,
        "in_group_size": columns,
    }
    tensors = {name: stored(x) for name, x in layer.state_dict().items()}
    return {"config": config, "stored": tensors, "values": stored(values)}


OUTPUT.write_text(json.dumps({name: matrix(*x) for name, x in SCHEMES.items()}) + "\n")
