"""Codecs: which stored tensors together stand for one weight, of what shape, told from names, dtypes and shapes that agree.

The layouts are those that writers use: AutoAWQ (GEMM, GEMV, GEMV-fast), AutoGPTQ and GPTQModel, bitsandbytes, transformers' FP8 and MXFP4,
NVIDIA ModelOpt, compressed-tensors, MLX, and ggml's block types. A name alone proves nothing; what the headers leave open stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..formats.dtypes import GGML, PLAIN
from ..formats.manifest import Tensor
from .packed_tensors import Found, Packing, ratio
from .packed_words import grouped, mlx, words

__all__ = ["Packing", "find_packings"]

SCALES = ("_scale_inv", "_scale", "scale", "qscale_weight", "scale_weight")
"""The companions without which eight bits are no codec but a plain type."""
BLOCKS = {"absmax": "scale", "nested_absmax": "scale", "quant_map": "meta", "nested_quant_map": "meta"}
"""Those of bitsandbytes' four bits."""
FLOAT8 = tuple(name for name in PLAIN if name.startswith("F8_"))
FP4 = {(16, "F8_E4M3"): "nvfp4", (32, "U8"): "mxfp4", (32, "F8_E8M0"): "mxfp4"}
"""Values to a scale, and its dtype."""


def find_packings(tensors: Sequence[Tensor], quantization: Mapping[str, Any] | None = None) -> dict[str, Packing]:
    """For each tensor that is part of a packed weight, by name: what it is to it. `quantization` is what a configuration says of it."""
    if not any(dtype in HANDLERS for dtype in {x.dtype for x in tensors}):
        return {}
    found = Found(tensors, quantization or {})
    for x in tensors:
        if (handler := HANDLERS.get(x.dtype)) is not None and x.name not in found.made:
            handler(found, x)
    if found.made and found.beside.keys() & {"k_scale", "v_scale"}:
        _cache(found)
    return found.made


def _eight(found: Found, x: Tensor) -> None:
    """FP8, or INT8: a value a byte, with scales for tensors, channels or blocks."""
    beside = found.companions(x.name)
    scale = next((found.named[name] for name, end in beside if end in SCALES), None) if beside else None
    if scale is None or scale.elements > x.elements:
        return
    if x.dtype == "I8" and scale.dtype in ("U8", "F8_E8M0") and ratio(x, scale) == 16:
        found.pack(x, Packing.of_values("mxfp4", x.name, (*x.shape[:-1], 2 * x.shape[-1])), beside)
    else:
        found.pack(x, Packing.of_values("int8" if x.dtype == "I8" else "fp8", x.name, x.shape), beside)


def _signed(found: Found, x: Tensor) -> None:
    """INT8 of bitsandbytes, or as above."""
    base = x.name.removesuffix("weight")
    scale = found.get(f"{base}SCB", "F32", "F16", "BF16")
    if scale is not None and len(x.shape) == 2 and scale.elements == x.shape[0]:
        found.add(x, Packing.of_values("bnb-int8", x.name, x.shape), {scale.name: "scale", f"{base}weight_format": "meta"})
    elif x.name.endswith(".qweight"):
        grouped(found, x)
    else:
        _eight(found, x)


def _bytes(found: Found, x: Tensor) -> None:
    """Four bits, two to a byte: bitsandbytes, NVFP4, MXFP4."""
    name, state, quant = x.name.partition(".quant_state.bitsandbytes__")
    if state and quant in ("nf4", "fp4"):
        _bitsandbytes(found, x, name, quant)
    elif x.name.endswith(("_blocks", ".blocks")):
        scales = found.get(f"{x.name[:-6]}scales", "U8")
        if scales is not None and len(x.shape) > 1 and scales.shape == x.shape[:-1] and x.shape[-1] == 16:
            found.add(x, Packing.of_values("mxfp4", x.name[:-7], (*x.shape[:-2], 32 * x.shape[-2])), {scales.name: "scale"})
    else:
        _four(found, x)


def _bitsandbytes(found: Found, state: Tensor, name: str, quant: str) -> None:
    """Values in one column of whatever dtype; their shape is in the tensor of the quantisation state, which no header shows."""
    x, scale = found.get(name), found.get(f"{name}.absmax", "F32", "F16", "BF16", "U8")
    if x is not None and scale is not None and len(x.shape) == 2 and 1 in x.shape and x.dtype in PLAIN:
        values = Packing(f"bnb-{quant}", name, "values", None, 2 * x.elements * PLAIN[x.dtype].bytes)
        found.add(x, values, {state.name: "meta"} | {f"{name}.{end}": role for end, role in BLOCKS.items()})


def _four(found: Found, x: Tensor) -> None:
    """FP4 with a scale for each 16 (FP8: NVFP4) or 32 (an exponent: MXFP4) values of a row; or BitNet's four rows in one, if declared."""
    weight = x.name.removesuffix("_packed")
    scale = found.get(f"{weight}_scale")
    each = 1 if x.dtype == "F4" else 2
    if scale is None:
        return
    if found.quantization.get("quant_method") == "bitnet" and scale.elements == 1 and len(x.shape) == 2:
        found.pack(x, Packing.of_values("bitnet", weight, (4 * x.shape[0], x.shape[1])))
    elif kind := FP4.get((each * ratio(x, scale), scale.dtype)):
        found.pack(x, Packing.of_values(kind, weight, (*x.shape[:-1], each * x.shape[-1])))


def _ggml(found: Found, x: Tensor) -> None:
    """Blocks that hold their scales, and elements that are counted in the header; some files keep one more scale beside them."""
    base = x.name.removesuffix("weight")
    beside = {y.name: "scale" for end in ("scale", "input_scale") if (y := found.get(base + end)) is not None and len(y.shape) < 2}
    found.add(x, Packing.of_values("ggml", x.name, x.shape), beside)


def _cache(found: Found) -> None:
    """Scales of the key/value cache that stand in an attention block: beside packed weights, and no weights themselves."""
    for name, x in found.named.items():
        if name.endswith((".k_scale", ".v_scale")) and x.elements == 1 and name not in found.made:
            found.made[name] = Packing("fp8-cache", name.rpartition(".")[0], "scale")


HANDLERS: dict[str, Callable[[Found, Tensor], None]] = {
    **dict.fromkeys(FLOAT8, _eight),
    **dict.fromkeys(("I16", "I32", "I64"), words),
    "I8": _signed,
    "U8": _bytes,
    "F4": _four,
    "U32": mlx,
    **dict.fromkeys((x.name for x in GGML.values() if x.block > 1), _ggml),
}
"""What a tensor of this dtype may be."""
