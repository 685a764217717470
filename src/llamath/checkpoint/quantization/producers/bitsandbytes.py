"""bitsandbytes: LLM.int8(), and NF4 and FP4, whose codes are positions in a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....utils.errors import LlamathError, safe
from ....utils.record_type import Record
from ...formats.dtypes import DTYPES, PLAIN
from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy, to_float32
from ..matrix_formats import MatrixFormat, parts
from ..packed_tensors import SCALE_DTYPES, Detection, PackedWeight, Packing, Shape
from ..recipes import Recipe, skipping_recipe
from ..registry import Keys, PackedLayout, Producer
from ..shared.half_steps import NextCodes, next_int8
from ..shared.packed_cut import Cuts, CutWeight
from ..shared.recipe_keys import refuse, unknown, wrong
from ..shared.stored_matrix import Rows, StoredMatrix
from ..weight_format import WeightFormat

if TYPE_CHECKING:
    from ..dequantizers import OpenedPacked
    from ..shared.stored_matrix import Array, Arrays

_STATE = ".quant_state.bitsandbytes__"
_WORDS = {
    "uint8": "U8",
    "int8": "I8",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""The dtypes that 4 bits are packed into."""


# Formats and recipe


def _int8_format() -> MatrixFormat:
    return MatrixFormat(
        name="bnb-int8",
        title="LLM.int8(), a scale for each row",
        parts=parts(".weight I8 out in", ".SCB F32 out", ".weight_format U8"),
        compute_rate="int8",
    )


def _4bit_format(kind: str = "nf4", nested: bool = False, words: str = "U8") -> MatrixFormat:
    """Return NF4 or FP4, without the JSON of its state; `nested` is double quantization."""
    return MatrixFormat(
        name=f"bnb-{kind}" + ("-dq" if nested else ""),
        title=f"{kind.upper()}, a scale for 64 weights" + (", scales in 8 bits" if nested else ""),
        parts=parts(
            f".weight {words} out·in/{2 * DTYPES[words].size(1)} 1",
            f".weight.absmax {'U8' if nested else 'F32'} out·in/64",
            f".weight.nested_absmax F32 out·in/{64 * 256}" if nested else "",
            ".weight.quant_map F32 16",
            ".weight.nested_quant_map F32 256" if nested else "",
        ),
    )


def _named(word: str) -> WeightFormat | None:
    if word == "bnb-int8":
        to = _int8_format()
        return WeightFormat(name=word, unpacked_dtype="F16", packing=word, matrix=to)
    kind, _, nested = word.removeprefix("bnb-").partition("-")
    if kind not in ("nf4", "fp4") or nested not in ("", "dq") or word.endswith("-"):
        return None
    return WeightFormat(
        name=word, packing=f"bnb-{kind}", matrix=_4bit_format(kind, nested=bool(nested))
    )


def _read(config: Keys, _: str) -> Recipe:
    default_dtype = ""
    in_4_bits, in_8_bits = (
        bool(config.get(f"load_in_{n}bit") or config.get(f"_load_in_{n}bit")) for n in (4, 8)
    )
    if in_4_bits and in_8_bits:
        raise refuse("load_in_4bit and load_in_8bit exclude each other")
    if in_4_bits:
        kind = str(config.get("bnb_4bit_quant_type", "fp4"))
        if kind not in ("nf4", "fp4"):
            raise wrong("bnb_4bit_quant_type", "nf4 or fp4", kind)
        words = str(config.get("bnb_4bit_quant_storage") or "uint8").removeprefix("torch.")
        if words not in _WORDS:
            raise wrong("bnb_4bit_quant_storage", f"one of {', '.join(_WORDS)}", words)
        to = _4bit_format(kind, bool(config.get("bnb_4bit_use_double_quant")), _WORDS[words])
    elif in_8_bits:
        to, default_dtype = _int8_format(), "F16"
    else:
        raise unknown("bitsandbytes with neither load_in_4bit nor load_in_8bit")
    return skipping_recipe(
        "bitsandbytes", config, to, "llm_int8_skip_modules", default_dtype=default_dtype
    )


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    """Detect LLM.int8() by its scale for each row; and 4 bits by their quantization state, which
    has the shape, for values in one column of any dtype.
    """
    if x.dtype == "I8":
        base = x.name.removesuffix("weight")
        scale = d.get(f"{base}SCB", *SCALE_DTYPES)
        if scale is not None and len(x.shape) == 2 and scale.elements == x.shape[0]:
            roles = {scale.name: "scale", f"{base}weight_format": "meta"}
            d.record(x, Packing.of_values("bnb-int8", x.name, x.shape), roles)
        return
    name, marker, kind = x.name.partition(_STATE)
    if not marker or kind not in ("nf4", "fp4"):
        return
    values, scale = d.get(name), d.get(f"{name}.absmax", *SCALE_DTYPES, "U8")
    if values is None or scale is None or len(values.shape) != 2 or 1 not in values.shape:
        return
    if values.dtype in PLAIN:
        count = 2 * values.elements * PLAIN[values.dtype].bytes
        scales = dict.fromkeys((f"{name}.absmax", f"{name}.nested_absmax"), "scale")
        tables = dict.fromkeys((f"{name}.quant_map", f"{name}.nested_quant_map"), "meta")
        roles = {x.name: "meta", **scales, **tables}
        d.record(values, Packing(f"bnb-{kind}", name, "values", None, count), roles)


# Values


def _open_int8(m: StoredMatrix) -> Rows:
    np = require_numpy()
    values, scale = m.raw("values"), m.floats("SCB")
    if m.find("weight_format") and m.number("weight_format") != 0:
        raise m.error("expected weight_format 0, which is in rows")
    return lambda first, last: (
        values[first:last].astype(np.float32) * scale[first:last, None] * np.float32(1 / 127)
    )


def _parse_state(data: bytes) -> dict[str, Any] | None:
    """Return a quantization state; None if it is no JSON object."""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        state = None
    return state if isinstance(state, dict) else None


def _is_shape(shape: object) -> bool:
    is_pair = isinstance(shape, list) and len(shape) == 2
    return is_pair and isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape)


def _state(x: PackedWeight, arrays: Arrays) -> dict[str, Any]:
    state = _parse_state(bytes(arrays["state"][1].tobytes()[:10_000]))
    if state is None:
        raise LlamathError(f"{safe(x.name)}: expected its quantization state as JSON")
    return state


def _shape(x: PackedWeight, arrays: Arrays) -> Shape:
    shape: Any = _state(x, arrays).get("shape")
    size = arrays["values"][1].nbytes
    if not _is_shape(shape) or max(shape) >= 1 << 40:
        raise LlamathError(
            f"{safe(x.name)}: expected a shape of two integers in its "
            f"quantization state, found {safe(repr(shape), 60)}"
        )
    if -(-shape[0] * shape[1] // 2) != size:
        raise LlamathError(
            f"{safe(x.name)}: its quantization state has the shape {shape}, its "
            f"values {size:,} bytes"
        )
    return tuple(shape)


def _open_4bit(m: StoredMatrix) -> Rows:
    """Half bytes, the high one first, are positions in a table of 16 values; blocks of the flat
    matrix have a scale.
    """
    np = require_numpy()
    state = _state(m.weight, m.arrays)
    octets = np.ascontiguousarray(m.raw("values")).view(np.uint8).reshape(-1)
    table = m.floats("quant_map").reshape(-1)
    block: Any = state.get("blocksize")
    absmax = m.raw("absmax").reshape(-1)
    if m.find("nested_absmax"):
        outer, offset = state.get("nested_blocksize"), state.get("nested_offset")
        if type(outer) is not int or outer < 1 or not isinstance(offset, float):
            raise m.error("expected nested_blocksize and nested_offset in its quantization state")
        scale = m.floats("nested_quant_map").reshape(-1)[absmax] * np.repeat(
            m.floats("nested_absmax").reshape(-1), outer
        )[: len(absmax)] + np.float32(offset)
    else:
        scale = m.floats("absmax").reshape(-1)
    is_int = type(block) is int and block > 0
    if not is_int or -(-m.out * m.into // block) != len(scale) or len(table) != 16:
        raise m.error(
            f"expected a scale for each block of {block} values and a table of 16, "
            f"found {len(scale):,} and {len(table)}"
        )

    def rows(first: int, last: int) -> Any:
        start, end = first * m.into, last * m.into
        part = octets[start // 2 : -(-end // 2)]
        halves = np.stack((part >> 4, part & 15), -1).reshape(-1)[start % 2 :][: end - start]
        return (table[halves] * scale[np.arange(start, end) // block]).reshape(last - first, m.into)

    return rows


_SCALE_ERROR = 2
"""The step with which the values are how far the rounding of scales may have moved them."""


class _TableSteps(Record):
    """Positions in a table; nothing lies beyond its ends, the largest values of a block."""

    def moved(
        self,
        x: OpenedPacked,  # noqa: ARG002
        own: Arrays,
        step: int,
    ) -> Mapping[str, tuple[str, Any]]:
        """Return tables with the values next to those of the codes, or with the errors that
        rounded scales cause.
        """
        np = require_numpy()
        dtype, stored = own["quant_map"]
        table = to_float32(stored, dtype).reshape(-1)
        if step != _SCALE_ERROR:
            return {"quant_map": ("F32", _next_in_table(table, step))}
        dtype, stored = own["nested_quant_map"]
        nested = to_float32(stored, dtype).reshape(-1)
        gaps = np.float32(0.5 + 2**-10) * _largest_gap(nested)
        state = json.loads(bytes(own["state"][1].tobytes()[:10_000])) | {"nested_offset": 0.0}
        return {
            "quant_map": ("F32", np.abs(table) + _largest_gap(table) / 2),
            "nested_quant_map": ("F32", gaps),
            "state": ("U8", np.frombuffer(json.dumps(state).encode(), np.uint8)),
        }

    def half_steps(self, x: OpenedPacked, matrix: int, first: int, last: int) -> tuple[Any, Any]:
        """Return half the distances to the values next to these in the table."""
        np = require_numpy()
        value, less, more = x.neighbors(matrix, first, last)
        inward, outward = np.abs(value - less) / 2, np.abs(more - value) / 2
        error = np.float32(0)
        if "nested_absmax" in x.arrays:
            error = x.rows_at(matrix, _SCALE_ERROR)(first, last)
        return inward + error, outward + error


def _largest_gap(table: Any) -> Any:
    np = require_numpy()
    return np.maximum(*(np.abs(_next_in_table(table, x) - table) for x in (-1, 1)))


def _next_in_table(table: Array, step: int) -> Any:
    """Return the next value of each away from 0 (1) or towards it (−1), itself if there is none;
    of 0, the one above (−1) or below.
    """
    np = require_numpy()
    values = np.unique(table)
    at = np.searchsorted(values, table)
    upward = np.where(table == 0, step < 0, (table > 0) == (step > 0))
    return values[np.clip(at + np.where(upward, 1, -1), 0, len(values) - 1)].astype(np.float32)


# Cuts


def _cut_int8(x: CutWeight) -> Cuts:
    if not x.cut.is_output:
        return {x.values: x.scaled_cut(x.values, 1)}
    names = (name for name, y in x.packings.items() if y.role in ("values", "scale"))
    return {name: x.scaled_cut(name, 0) for name in names}


def _cut_4bit(x: CutWeight) -> Cuts:
    """Cut blocks of the flat matrix: rows are ranges of them, and columns are columns of blocks
    if a row is whole blocks.
    """
    name = next((y for y in x.packings if _STATE in y), "")
    stored = x.tensors.get(name)
    is_small = stored is not None and stored.bytes <= 1 << 16
    state = (_parse_state(x.read(stored)) if stored is not None and is_small else None) or {}
    if not _is_shape(state.get("shape")):
        raise x.refuse("and its quantization state is no JSON with the shape of a matrix")
    out, into = state["shape"]
    block, nested = state.get("blocksize"), x.find(".nested_absmax")
    if type(block) is not int or block < 1 or (out if x.cut.is_output else into) != x.length:
        raise x.refuse(
            f"and its quantization state does not describe {x.length:,} rows or columns in blocks"
        )
    absmax, of_nested = x.require(".absmax"), state.get("nested_blocksize")
    if x.cut.is_output:
        names = [x.values, absmax, *([nested] if nested else [])]
        if nested and (type(of_nested) is not int or of_nested < 1):
            raise x.refuse("and its quantization state has no nested_blocksize")
        groups = {absmax: block, nested: block * (of_nested or 0)}
        cuts = {y: x.scaled_cut(y, 0, groups.get(y, 0), per=into) for y in names}
    elif nested:
        raise x.refuse(
            "with double quantization, whose blocks of scales go across rows, and "
            "cannot be cut by columns"
        )
    else:
        if into % block:
            raise x.refuse(f"in blocks of {block} values that go across rows of {into:,}")
        cuts = {}
        for y, of_block in ((x.values, 0), (absmax, block)):
            n = (x.tensors[y].shape or (1,))[0]
            view = x._replace(
                tensors={**x.tensors, y: x.tensors[y]._replace(shape=(out, n // out))}
            )
            cuts[y] = view.scaled_cut(y, 1, of_block)._replace(view=(out, n // out))
    length = x.cut.size if x.is_rank else sum(b - a for a, b in x.cut.ranges)
    shape = [length, into] if x.cut.is_output else [out, length]
    return {**cuts, name: json.dumps(state | {"shape": shape}).encode()}


_LAYOUT_4BIT = PackedLayout(
    open=_open_4bit,
    steps=_TableSteps(),
    stored_shape=_shape,
    shape_in=_STATE,
    shape_words="quantization state",
    cut=_cut_4bit,
)
PRODUCER = Producer(
    read=_read,
    recognized=("bnb-",),
    detect=_detect,
    layouts={
        "bnb-int8": PackedLayout(
            open=_open_int8,
            steps=NextCodes(next_codes=next_int8),
            cut=_cut_int8,
            by_rows=True,
        ),
        "bnb-nf4": _LAYOUT_4BIT,
        "bnb-fp4": _LAYOUT_4BIT,
    },
    named=_named,
)
