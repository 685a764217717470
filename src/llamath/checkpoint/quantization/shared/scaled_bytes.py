"""FP8 and INT8: numbers of 8 bits with scales of the tensor, of rows or of blocks, as many
quantizers store them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy, to_float32
from ..matrix_formats import MatrixFormat, MatrixPart, parts
from ..packed_tensors import Detection, Packing, values_per_scale
from ..registry import PackedLayout, Producer
from ..weight_format import WeightFormat
from .half_steps import NextCodes, next_float8, next_int8
from .packed_cut import cut_in_order
from .recipe_keys import mapping
from .stored_matrix import Rows, StoredMatrix, per_value

SCALES = ("weight_scale_inv", "weight_scale", "scale_inv", "scale", "qscale_weight", "scale_weight")
_SCALE_NAMES = ("_scale_inv", "_scale", "scale", "qscale_weight", "scale_weight")
"""Companions without which FP8 and INT8 are plain types."""


# Formats


def fp8_format(
    block: tuple[int, int] | None = (128, 128),
    scale: str = "weight_scale_inv",
    static: str = "",
    dtype: str = "F32",
    axes: str = "",
) -> MatrixFormat:
    """Return FP8 with a scale for each block or for the matrix; `static` names the scale of
    inputs, `axes` are those of scales where they are not one for each side of the blocks.
    """
    if block is None:
        name, title = "fp8-tensor", "FP8, a scale for the matrix"
    else:
        name = "fp8" if block == (128, 128) else f"fp8-{block[0]}x{block[1]}"
        title = f"FP8, a scale for each block of {block[0]}×{block[1]}"
        axes = axes or f"out/{block[0]} in/{block[1]}"
    stored = parts(
        ".weight F8_E4M3 out in", f".{scale} {dtype} {axes}", static and f".{static} {dtype}"
    )
    return MatrixFormat(name=name, title=title, parts=stored, compute_rate="fp8")


def fp8_rows_format(
    dtype: str = "F32", axes: str = "out", extra: Sequence[MatrixPart] = ()
) -> MatrixFormat:
    """Return FP8 with a scale for each row."""
    stored = parts(".weight F8_E4M3 out in", f".weight_scale {dtype} {axes}")
    title = "FP8, a scale for each row"
    return MatrixFormat(name="fp8-rows", title=title, parts=(*stored, *extra), compute_rate="fp8")


def mxfp8_format(scale: str = "weight_scale") -> MatrixFormat:
    """Return MXFP8: an 8-bit exponent for 32 values."""
    stored = parts(".weight F8_E4M3 out in", f".{scale} U8 out in/32")
    title = "MXFP8, an 8-bit exponent for 32 weights"
    return MatrixFormat(name="mxfp8", title=title, parts=stored, compute_rate="fp8")


def _named(word: str) -> WeightFormat | None:
    to = fp8_format()
    return WeightFormat(name="fp8", packing="fp8", matrix=to) if word == "fp8" else None


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    """Detect FP8 and INT8 by their scale; bytes with an exponent for 16 of them are two FP4
    numbers each, as DeepSeek-V4 stores experts.
    """
    kind = "int8" if x.dtype == "I8" else "fp8"
    if kind == "int8" and x.name.endswith(".qweight"):
        return
    companions = d.companions(x.name)
    scale = next((d.tensors[name] for name, end in companions if end in _SCALE_NAMES), None)
    if scale is None or scale.elements > x.elements:
        return
    shape = x.shape
    if kind == "int8" and scale.dtype in ("U8", "F8_E8M0") and values_per_scale(x, scale) == 16:
        kind, shape = "mxfp4", (*x.shape[:-1], 2 * x.shape[-1])
    d.record_with_companions(x, Packing.of_values(kind, x.name, shape), companions)


# Values


def _open(m: StoredMatrix) -> Rows:
    rows = scaled_rows(m, m.raw("values"), m.dtype("values"))
    if not m.find("pre_quant_scale"):
        return rows
    inputs = m.floats("pre_quant_scale")
    return lambda first, last: rows(first, last) * inputs


def scaled_rows(m: StoredMatrix, values: Any, dtype: str) -> Rows:
    """Multiply numbers by scales of the tensor, of rows, of groups of a row, or of blocks of
    rows and columns.
    """
    np = require_numpy()
    m.check("values", values.shape, (m.out, m.into))
    scale = m.floats(*SCALES)
    zero = m.raw("weight_zero_point") if m.find("weight_zero_point") else None
    if scale.ndim == 4 and scale.shape[1::2] == (1, 1):  # as ModelOpt stores blocks
        scale = scale.reshape(scale.shape[::2])
    if scale.size == 1:
        scale = scale.reshape(1, 1)
    elif scale.ndim == 1 and len(scale) == m.out:
        scale = scale[:, None]
    if scale.ndim != 2:
        raise m.error(
            f"expected scales of the tensor, of rows or of blocks, found shape {list(scale.shape)}"
        )
    tall, wide = (
        _block_length(m, axis, n, of)
        for axis, n, of in ((0, m.out, scale.shape[0]), (1, m.into, scale.shape[1]))
    )
    if zero is not None:
        zero = zero.reshape(scale.shape)

    def rows(first: int, last: int) -> Any:
        of_row = np.arange(first, last) // tall
        found = to_float32(values[first:last], dtype)
        if zero is not None:
            found = found - per_value(zero[of_row].astype(np.float32), m.into, wide)
        return found * per_value(scale[of_row], m.into, wide)

    return rows


def _block_length(m: StoredMatrix, axis: int, n: int, of: int) -> int:
    """Return the number of rows or columns that share a scale."""
    if of == 1:
        return max(n, 1)
    declared = _declared_block(m.config)
    if len(declared) == 2 and -(-n // declared[axis]) == of:
        return declared[axis]
    if not of or n % of:
        raise m.error(
            f"expected a number of scales that divides {n:,}, found {of:,}, and the "
            "config declares no block size"
        )
    return n // of


def _declared_block(config: Mapping[str, Any]) -> Sequence[int]:
    """Return the rows and columns that share a scale, as a `quantization_config` declares them."""
    groups = mapping(config.get("config_groups")).values()
    weights = [mapping(mapping(x).get("weights")) for x in groups]
    blocks = [config.get("weight_block_size"), *(x.get("block_structure") for x in weights)]
    known = {tuple(x) for x in blocks if isinstance(x, list) and is_block(x)}
    return known.pop() if len(known) == 1 else ()


def is_block(x: object) -> bool:
    """Whether a value of a config is two positive integers."""
    is_pair = isinstance(x, Sequence) and len(x) == 2
    return is_pair and isinstance(x, Sequence) and all(type(n) is int and n > 0 for n in x)


_ERROR = 2.0**-8
"""Quantizers divide by the scale in bfloat16."""
PRODUCER = Producer(
    detect=_detect,
    layouts={
        "fp8": PackedLayout(
            open=_open,
            steps=NextCodes(next_codes=next_float8, error=_ERROR),
            cut=lambda x: cut_in_order(x, _declared_block(x.config), is_shared=True),
            by_rows=True,
        ),
        "int8": PackedLayout(
            open=_open,
            steps=NextCodes(next_codes=next_int8, error=_ERROR),
            cut=lambda x: cut_in_order(x, is_shared=True),
        ),
    },
    named=_named,
)
