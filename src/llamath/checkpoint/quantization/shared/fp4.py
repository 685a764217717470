"""MXFP4 and NVFP4: two numbers in a byte, with a scale for 32 or 16 of them, as many quantizers
store them.
"""

from __future__ import annotations

from typing import Any

from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, parts
from ..packed_tensors import Detection, Packing, values_per_scale
from ..registry import PackedLayout, Producer
from ..weight_format import WeightFormat
from .half_steps import NextCodes, next_fp4
from .packed_cut import Cuts, CutWeight, cut_in_order
from .stored_matrix import Rows, StoredMatrix, per_value

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""Values of E2M1 (OCP Microscaling Formats 1.0, section 5.3.3)."""


# Formats


def mxfp4_format() -> MatrixFormat:
    """Return MXFP4: two values in a byte, an 8-bit exponent for 32 values."""
    return _mxfp4(".weight U8 out in/2", ".weight_scale U8 out in/32")


def mxfp4_blocks_format() -> MatrixFormat:
    """Return MXFP4 as gpt-oss stores experts, in blocks of 16 bytes."""
    return _mxfp4("_blocks U8 out in/32 16", "_scales U8 out in/32")


def mxfp4_experts_format() -> MatrixFormat:
    """Return MXFP4 as DeepSeek-V4 stores experts."""
    return _mxfp4(".weight I8 out in/2", ".scale F8_E8M0 out in/32")


def _mxfp4(*texts: str) -> MatrixFormat:
    title = "MXFP4, an 8-bit exponent for 32 weights"
    return MatrixFormat(name="mxfp4", title=title, parts=parts(*texts))


def nvfp4_format(
    input_scale: bool = True, group: int = 16, pre_quant_scale: str = ""
) -> MatrixFormat:
    """Return NVFP4 as ModelOpt stores it; weight-only recipes have no input scale, and
    `pre_quant_scale` is the dtype of scales of inputs in AWQ.
    """
    activations = "" if input_scale else ", activations in 16 bits"
    return MatrixFormat(
        name=("nvfp4" if input_scale else "nvfp4-w4a16") + ("-awq" if pre_quant_scale else ""),
        title=f"NVFP4, an FP8 scale for {group} weights{activations}",
        parts=parts(
            ".weight U8 out in/2",
            f".weight_scale F8_E4M3 out in/{group}",
            ".weight_scale_2 F32",
            ".input_scale F32" if input_scale else "",
            pre_quant_scale and f".pre_quant_scale {pre_quant_scale} in",
        ),
        compute_rate="fp4" if input_scale else "",
    )


def packed_nvfp4_format(
    group: int = 16, is_activation: bool = True, has_input_scale: bool | None = None
) -> MatrixFormat:
    """Return NVFP4 as compressed-tensors stores it, also by other quantizers, with or without
    quantized activations.
    """
    is_scaled = is_activation if has_input_scale is None else has_input_scale
    return MatrixFormat(
        name="nvfp4" if is_activation else "nvfp4-w4a16",
        title="NVFP4",
        parts=parts(
            ".weight_packed U8 out in/2",
            f".weight_scale F8_E4M3 out in/{group}",
            ".weight_global_scale F32 1",
            ".input_global_scale F32 1" if is_scaled else "",
        ),
        compute_rate="fp4" if is_activation else "",
    )


def packed_mxfp_format(bits: int, group: int = 32) -> MatrixFormat:
    """Return MXFP4 or MXFP6 as compressed-tensors stores it, also by other quantizers."""
    return MatrixFormat(
        name=f"mxfp{bits}",
        title=f"MXFP{bits}, an 8-bit exponent for {group} weights",
        parts=parts(f".weight_packed U8 out in*{bits}/8", f".weight_scale U8 out in/{group}"),
    )


def _named(word: str) -> WeightFormat | None:
    if word == "mxfp4":
        return WeightFormat(name=word, packing=word, matrix=mxfp4_format(), experts_only=True)
    is_nvfp4 = word == "nvfp4"
    return WeightFormat(name=word, packing=word, matrix=nvfp4_format()) if is_nvfp4 else None


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    """Detect an 8-bit exponent for each 32 values, in blocks of 16 bytes (gpt-oss) or in rows; and
    an FP8 scale for each 16 values of a row.
    """
    if is_block_of_gpt_oss(x):
        scales, shape = d.get(f"{x.name[:-6]}scales", "U8"), x.shape
        if scales is None or len(shape) < 2 or scales.shape != shape[:-1] or shape[-1] != 16:
            return
        values = Packing.of_values("mxfp4", x.name[:-7], (*shape[:-2], 32 * shape[-2]))
        d.record(x, values, {scales.name: "scale"})
        return
    weight, per_number = x.name.removesuffix("_packed"), 1 if x.dtype == "F4" else 2
    scale = d.get(f"{weight}_scale", "U8", "F8_E8M0", "F8_E4M3")
    if scale is None or ".quant_state.bitsandbytes__" in x.name:
        return
    kind, group = ("nvfp4", 16) if scale.dtype == "F8_E4M3" else ("mxfp4", 32)
    if per_number * values_per_scale(x, scale) == group:
        shape = (*x.shape[:-1], per_number * x.shape[-1])
        d.record_with_companions(x, Packing.of_values(kind, weight, shape))


def is_block_of_gpt_oss(x: Tensor) -> bool:
    """Whether a tensor may have blocks of 16 bytes."""
    return x.dtype == "U8" and x.name.endswith(("_blocks", ".blocks"))


# Values


def _open(m: StoredMatrix) -> Rows:
    """Half bytes, the low one first, in E2M1, with a scale for 16 (NVFP4) or 32 (MXFP4) of them,
    and one for the matrix in NVFP4.
    """
    np = require_numpy()
    # gpt-oss has an axis of blocks
    octets = np.ascontiguousarray(m.raw("values")).view(np.uint8).reshape(m.out, -1)
    m.check("values", octets.shape, (m.out, m.into // 2))
    scale = m.floats("weight_scale", "weight_scales", "scales", "scale")
    scale = scale.reshape(m.out, -1)
    table = np.array(E2M1, np.float32)
    whole = np.float32(1)
    if m.find("weight_scale_2"):
        whole = m.floats("weight_scale_2").reshape(-1)[0]
    elif m.find("weight_global_scale"):
        whole = np.float32(1) / m.floats("weight_global_scale").reshape(-1)[0]
    elif m.weight.kind == "nvfp4":
        raise m.error("expected a scale of the matrix, weight_scale_2 or weight_global_scale")
    inputs = m.floats("pre_quant_scale") if m.find("pre_quant_scale") else None

    def rows(first: int, last: int) -> Any:
        part = octets[first:last]
        values = table[np.stack((part & 15, part >> 4), -1).reshape(last - first, m.into)]
        values = values * (per_value(scale[first:last], m.into) * whole)
        return values if inputs is None else values * inputs

    return rows


def _cut_mxfp4(x: CutWeight) -> Cuts:
    """Cut matrices or stacks of them, as gpt-oss's experts are."""
    of_weight = x.packings[x.values].shape
    axis = (len(of_weight) - 2 if of_weight is not None else 0) + (not x.cut.is_output)
    found = (name for name, y in x.packings.items() if y.role in ("values", "scale"))
    return {name: x.scaled_cut(name, axis) for name in found}


_STEPS = NextCodes(next_codes=next_fp4)
PRODUCER = Producer(
    detect=_detect,
    layouts={
        "mxfp4": PackedLayout(open=_open, steps=_STEPS, cut=_cut_mxfp4),
        "nvfp4": PackedLayout(open=_open, steps=_STEPS, cut=cut_in_order),
    },
    named=_named,
)
