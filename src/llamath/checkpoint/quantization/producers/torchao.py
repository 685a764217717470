"""torchao: INT8, INT4 and FP8, as its safetensors support flattens its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy, to_float32
from ..matrix_formats import MatrixFormat, parts
from ..packed_tensors import SCALE_DTYPES, Detection, Packing
from ..recipes import Recipe, skipping_recipe
from ..registry import Keys, PackedLayout, Producer
from ..shared.half_steps import NextCodes, next_float8, next_int8
from ..shared.recipe_keys import group_of, mapping, strings, unknown
from ..shared.stored_matrix import Rows, StoredMatrix

_TYPES = {
    "int8weightonlyconfig": "int8",
    "int8_weight_only": "int8",
    "int8dynamicactivationint8weightconfig": "int8",
    "int8_dynamic_activation_int8_weight": "int8",
    "float8weightonlyconfig": "fp8-tensor",
    "float8_weight_only": "fp8-tensor",
    "float8dynamicactivationfloat8weightconfig": "fp8-granularity",
    "float8_dynamic_activation_float8_weight": "fp8-granularity",
    "int4weightonlyconfig": "int4",
    "int4_weight_only": "int4",
}


# Formats and recipe


def _format(name: str, dtype: str, axes: str, zero: bool = False) -> MatrixFormat:
    return MatrixFormat(
        name=name,
        title=f"{dtype} of torchao",
        parts=parts(
            f"._weight_qdata {dtype} out in",
            f"._weight_scale F32 {axes}",
            f"._weight_zero_point I8 {axes}" if zero else "",
        ),
        compute_rate="int8" if zero else "fp8",
    )


def _read(config: Keys, dtype: str) -> Recipe:
    kind, keys = config.get("quant_type"), config.get("quant_type_kwargs") or {}
    if isinstance(kind, Mapping):
        kind = kind.get("default", kind)
        keys = kind.get("_data", {}) if isinstance(kind, Mapping) else {}
        kind = kind.get("_type") if isinstance(kind, Mapping) else kind
    keys = mapping(keys)
    method, granularity = _TYPES.get(str(kind).lower()), keys.get("granularity")
    if isinstance(granularity, Sequence) and not isinstance(granularity, str):
        granularity = granularity[0] if granularity else None
    name = str(
        granularity.get("_type") if isinstance(granularity, Mapping) else granularity or "PerTensor"
    ).lower()
    if method == "fp8-granularity":
        method = {"pertensor": "fp8-tensor", "perrow": "fp8-rows"}.get(name)
    if method == "int8" and keys.get("group_size") is None and name in ("pertensor", "perrow"):
        to = _format("int8-rows", "I8", "out 1", zero=True)
    elif method in ("fp8-tensor", "fp8-rows"):
        is_by_row = method == "fp8-rows" or "weightonly" in str(kind).lower().replace("_", "")
        named = ("fp8-rows", "out 1") if is_by_row else ("fp8-tensor", "1 1")
        to = _format(named[0], "F8_E4M3", named[1])
    elif method == "int4":
        to = _int4_format(keys, dtype)
    else:
        raise unknown(f"torchao quant_type {kind}")
    key = "modules_to_not_convert"
    # the head as well; torchao passes over embeddings in these formats
    if config.get("include_input_output_embeddings"):
        listed = strings(config, key) or ()
        config = {**config, key: [x for x in listed if x not in ("lm_head", "embed_out")]}
    return skipping_recipe("torchao", config, to, key)


def _int4_format(keys: Keys, dtype: str) -> MatrixFormat:
    """Return INT4 in one of its packings."""
    group, packing = group_of(keys, 128), keys.get("int4_packing_format", "plain")
    packing = str(packing.get("_data") if isinstance(packing, Mapping) else packing).lower()
    if group < 1:
        raise unknown(f"torchao group_size {group}")
    scale = f"._weight_scale {dtype} in/{group} out"
    layouts = {
        "plain": (
            "._weight_qdata I8 out in/2",
            scale,
            f"._weight_zero_point {dtype} in/{group} out",
        ),
        "plain_int32": (
            "._weight_qdata I32 out in/8",
            scale,
            f"._weight_zero_point I8 in/{group} out",
        ),
        "tile_packed_to_4d": (
            "._weight_qdata I32 out/8 in/1024*8 32 4",
            f"._weight_scale_and_zero {dtype} in/1024*{max(1024 // group, 1)} out 2",
        ),
    }
    if packing not in layouts:
        raise unknown(f"torchao int4_packing_format {packing}")
    title = f"INT4 of torchao, groups of {group}"
    return MatrixFormat(name=f"int4-g{group}", title=title, parts=parts(*layouts[packing]))


# Detection and values


def _detect(d: Detection, x: Tensor) -> None:
    """Detect `X._weight_qdata` and a scale for each row, or one."""
    base = x.name.removesuffix("_weight_qdata")
    scale = d.get(f"{base}_weight_scale", *SCALE_DTYPES)
    if base == x.name or scale is None or len(x.shape) != 2:
        return
    if scale.shape in ((x.shape[0], 1), (1, 1), (1,), ()):
        values = Packing.of_values("torchao", f"{base}weight", x.shape)
        d.record(x, values, {scale.name: "scale", f"{base}_weight_zero_point": "zero"})


def _open(m: StoredMatrix) -> Rows:
    """Numbers less their zero point, times a scale for each row or for the matrix."""
    np = require_numpy()
    values, dtype = m.raw("values"), m.dtype("values")
    scale = m.floats("_weight_scale").reshape(-1, 1)
    zero = np.zeros_like(scale)
    if m.find("_weight_zero_point"):
        zero = m.raw("_weight_zero_point").reshape(-1, 1).astype(np.float32)

    def rows(first: int, last: int) -> Any:
        of_row = slice(first, last) if len(scale) > 1 else slice(None)
        return (to_float32(values[first:last], dtype) - zero[of_row]) * scale[of_row]

    return rows


def _next_codes(codes: Any, step: int) -> Any:
    return (next_int8 if codes.dtype.kind == "i" else next_float8)(codes, step)


_STEPS = NextCodes(next_codes=_next_codes, error=2.0**-8)
PRODUCER = Producer(
    read=_read,
    recognized=("torchao",),
    detect=_detect,
    layouts={"torchao": PackedLayout(open=_open, steps=_STEPS)},
)
