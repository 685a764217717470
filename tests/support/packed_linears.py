"""Linear layers as the quantizers store them, with the numbers that they stand for, computed from integers and scales."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

GROUP = 16
_AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
_E2M1 = torch.tensor(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
)
Packed = tuple[dict[str, Tensor], Tensor]
"""Stored tensors by the end of their names, and the weight [out, in] in float32."""


def _words(values: Tensor, bits: int = 4) -> Tensor:
    """Pack rows of integers into 32-bit words, the first in the lowest bits."""
    per_word = 32 // bits
    grouped = values.long().reshape(len(values), -1, per_word)
    packed = (grouped << (bits * torch.arange(per_word))).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()


def _random(generator: torch.Generator, low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=generator)


def _scales(generator: torch.Generator, *shape: int) -> Tensor:
    return (torch.rand(shape, generator=generator) / 50 + 0.01).half()


def _gptq(g: torch.Generator, out: int, into: int) -> Packed:
    groups = into // GROUP
    q, zero, scale = (
        _random(g, 0, 16, out, into),
        _random(g, 1, 16, out, groups),
        _scales(g, out, groups),
    )
    index = torch.arange(into) // GROUP
    tensors = {
        "qweight": _words(q).T,
        "qzeros": _words((zero - 1).T),
        "scales": scale.T,
        "g_idx": index.int(),
    }
    return tensors, (q - zero[:, index]) * scale.float()[:, index]


def _awq(g: torch.Generator, out: int, into: int) -> Packed:
    groups = into // GROUP
    q, zero, scale = (
        _random(g, 0, 16, into, out),
        _random(g, 0, 16, groups, out),
        _scales(g, groups, out),
    )
    words = [
        _words(x.reshape(-1, out // 8, 8)[..., _AWQ_ORDER].reshape(-1, out)) for x in (q, zero)
    ]
    index = torch.arange(into) // GROUP
    return {"qweight": words[0], "qzeros": words[1], "scales": scale}, (
        (q - zero[index]) * scale.float()[index]
    ).T


def _pack_quantized(g: torch.Generator, out: int, into: int) -> Packed:
    q, scale = _random(g, 0, 16, out, into), _scales(g, out, into // GROUP).bfloat16()
    tensors = {
        "weight_packed": _words(q),
        "weight_scale": scale,
        "weight_shape": torch.tensor([out, into]),
    }
    return tensors, (q - 8) * scale.float().repeat_interleave(GROUP, 1)


def _int_quantized(g: torch.Generator, out: int, into: int) -> Packed:
    q, scale = _random(g, -128, 128, out, into), _scales(g, out, 1).bfloat16()
    return {"weight": q.to(torch.int8), "weight_scale": scale}, q * scale.float()


def _fp8(g: torch.Generator, out: int, into: int, *shape: int) -> tuple[Tensor, Tensor]:
    return torch.randn(out, into, generator=g).to(torch.float8_e4m3fn), _scales(g, *shape).float()


def _fp8_tensor(g: torch.Generator, out: int, into: int) -> Packed:
    q, scale = _fp8(g, out, into)
    return {"weight": q, "weight_scale": scale, "input_scale": torch.tensor(1.0)}, q.float() * scale


def _fp8_channel(g: torch.Generator, out: int, into: int) -> Packed:
    q, scale = _fp8(g, out, into, out, 1)
    return {"weight": q, "weight_scale": scale}, q.float() * scale


def _fp8_block(g: torch.Generator, out: int, into: int) -> Packed:
    q, scale = _fp8(g, out, into, -(-out // GROUP), -(-into // GROUP))
    whole = scale.repeat_interleave(GROUP, 0)[:out].repeat_interleave(GROUP, 1)[:, :into]
    return {"weight": q, "weight_scale_inv": scale}, q.float() * whole


def _nvfp4(g: torch.Generator, out: int, into: int) -> Packed:
    q, scale = (
        _random(g, 0, 16, out, into),
        (torch.rand(out, into // 16, generator=g) + 0.5).to(torch.float8_e4m3fn),
    )
    tensors = {
        "weight_packed": (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8),
        "weight_scale": scale,
        "weight_global_scale": torch.tensor([64.0]),
    }
    return tensors, _E2M1[q] * (scale.float() / 64).repeat_interleave(16, 1)


def _bnb_nf4(g: torch.Generator, out: int, into: int) -> Packed:
    q, table = _random(g, 0, 16, out * into), torch.linspace(-1, 1, 16)
    scale = torch.rand(-(-out * into // 64), generator=g)
    state = json.dumps(
        {"quant_type": "nf4", "blocksize": 64, "shape": [out, into], "dtype": "bfloat16"}
    ).encode()
    tensors = {
        "weight": (q[::2] << 4 | q[1::2]).to(torch.uint8)[:, None],
        "weight.absmax": scale,
        "weight.quant_map": table,
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(state), dtype=torch.uint8),
    }
    return tensors, (table[q] * scale.repeat_interleave(64)[: out * into]).reshape(out, into)


def _bnb_int8(g: torch.Generator, out: int, into: int) -> Packed:
    q, largest = _random(g, -127, 128, out, into), torch.rand(out, generator=g)
    tensors = {
        "weight": q.to(torch.int8),
        "SCB": largest,
        "weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    return tensors, q * largest[:, None] * torch.tensor(1 / 127)


PACKERS: dict[str, Callable[[torch.Generator, int, int], Packed]] = {
    "gptq": _gptq,
    "awq": _awq,
    "pack-quantized": _pack_quantized,
    "int-quantized": _int_quantized,
    "fp8 tensor": _fp8_tensor,
    "fp8 channel": _fp8_channel,
    "fp8 block": _fp8_block,
    "nvfp4": _nvfp4,
    "bnb nf4": _bnb_nf4,
    "bnb int8": _bnb_int8,
}
_COMPRESSED = {
    "pack-quantized": (
        "pack-quantized",
        {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP},
    ),
    "int-quantized": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
    "nvfp4": (
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    ),
}
QUANTIZATION_CONFIGS: dict[str, dict[str, Any]] = {
    "gptq": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "desc_act": False,
        "sym": False,
    },
    "awq": {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "version": "gemm",
        "zero_point": True,
    },
    "fp8 tensor": {"quant_method": "fp8", "activation_scheme": "static"},
    "fp8 channel": {"quant_method": "fbgemm_fp8"},
    "fp8 block": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [GROUP, GROUP],
    },
    "bnb nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "bnb int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
} | {
    name: {
        "quant_method": "compressed-tensors",
        "format": kind,
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"symmetric": True, "dynamic": False, **weights},
            }
        },
    }
    for name, (kind, weights) in _COMPRESSED.items()
}
