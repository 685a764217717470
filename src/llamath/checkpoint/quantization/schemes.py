"""The table of quantization schemes: the declaration, detection, layout, size and dequantization of each.

A row of `SCHEMES` has all properties of one scheme. `find_packings` detects the schemes of a checkpoint's tensors,
`parse_weight_format` parses the names that users write, and `format_of_config` reads a `quantization_config`. `run.weights.dequantize`
dequantizes by the name of the scheme.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.errors import LlamathError, nearest, safe
from ...core.record_type import Record
from ..formats.dtypes import GGML, PLAIN, find_dtype
from ..formats.manifest import Tensor
from . import detect
from .gguf_file_types import DEFAULT_VARIANTS, FILE_TYPES
from .packed_tensors import Detection, Packing

_MatrixFunction = Callable[[int, int], int]
"""A number for a matrix of (outputs, inputs)."""


class WeightFormat(Record):
    """A storage format of weights: the matrices of linear layers are packed, everything else has a plain dtype."""

    name: str  # as users write it
    unpacked_dtype: str = "BF16"  # of everything that is not packed
    packing: str = ""  # the scheme of the packed matrices, or the short name of the plain dtype
    matrix_bytes: _MatrixFunction | None = None  # None: nothing is packed
    formula: str = ""  # of `matrix_bytes`, for a matrix [out, in]
    experts_only: bool = False  # in mixtures of experts, only the experts are packed
    gguf_file_type: str = ""  # llama.cpp chooses a type for every tensor
    is_pure: bool = False  # every quantized matrix has the type of the file instead
    compute_rate: str = ""  # the GPU rate that applies to products of packed matrices; empty: that of `compute_dtype`

    @property
    def compute_dtype(self) -> str:
        """The plain dtype of activations."""
        if self.gguf_file_type or self.unpacked_dtype == "F16":
            return "F16"
        return "F32" if self.unpacked_dtype == "F32" else "BF16"


class _ScaleLayout(Record):
    """The elements stored for a matrix in addition to its values, such as scales."""

    name: str
    elements: _MatrixFunction
    formula: str


class _QuantizationScheme(Record):
    """One row of the table."""

    name: str  # of its packings; compressed-int and bnb- are followed by the number format
    value_dtypes: tuple[str, ...]  # of tensors that its `detect` looks at
    detect: Callable[[Detection, Tensor], None]
    formats: tuple[WeightFormat, ...] = ()  # those with fixed parameters
    format_of_config: Callable[[Mapping[str, Any]], str] | None = None  # name of the declared format; empty: not this scheme
    scale_layouts: tuple[_ScaleLayout, ...] = ()
    scale_suffixes: tuple[str, ...] = ()  # of the scales' names; empty: `run` cannot dequantize it


def _ceil(n: int, by: int) -> int:
    return -(-n // by)


def _fp8_bytes(out: int, into: int) -> int:
    return out * into + 4 * _ceil(out, 128) * _ceil(into, 128)


def _bnb_int8_bytes(out: int, into: int) -> int:
    return out * into + 4 * out + 1


def _bnb_nf4_bytes(out: int, into: int) -> int:
    return _ceil(out * into, 2) + 4 * _ceil(out * into, 64) + 64


def _bnb_nf4_dq_bytes(out: int, into: int) -> int:
    blocks = _ceil(out * into, 64)
    return _ceil(out * into, 2) + blocks + 4 * _ceil(blocks, 256) + 64 + 1024


def _mxfp4_bytes(out: int, into: int) -> int:
    return out * (_ceil(into, 2) + _ceil(into, 32))


def _nvfp4_bytes(out: int, into: int) -> int:
    return out * (_ceil(into, 2) + _ceil(into, 16)) + 8


def _awq_bytes(group: int) -> _MatrixFunction:
    return lambda out, into: out * into // 2 + _ceil(into, group) * (2 * out + _ceil(out, 8) * 4)


def _gptq_bytes(bits: int, group: int) -> _MatrixFunction:
    def size(out: int, into: int) -> int:
        groups = _ceil(into, group)
        return 4 * _ceil(into * bits, 32) * out + groups * (2 * out + 4 * _ceil(out * bits, 32)) + 4 * into

    return size


def _awq_elements(out: int, into: int) -> int:
    return out * into // 128 + out * into // 1024


def _group_format(method: str) -> Callable[[Mapping[str, Any]], str]:
    """Return the reader of a `quantization_config` with bits and a group size."""

    def name(config: Mapping[str, Any]) -> str:
        bits, group = config.get("bits"), config.get("group_size")
        if config.get("quant_method") != method or type(bits) is not int or type(group) is not int or group <= 0:
            return ""
        try:
            return parse_weight_format(f"{method}-{bits}bit-g{group}").name
        except LlamathError:
            return ""

    return name


def _bnb_8bit_of_config(config: Mapping[str, Any]) -> str:
    return "bnb-int8" if config.get("quant_method") == "bitsandbytes" and not config.get("load_in_4bit") else ""


def _bnb_4bit_of_config(config: Mapping[str, Any]) -> str:
    if config.get("quant_method") != "bitsandbytes" or not config.get("load_in_4bit"):
        return ""
    return "bnb-nf4-dq" if config.get("bnb_4bit_use_double_quant") else "bnb-nf4"


def _fp8_of_config(config: Mapping[str, Any]) -> str:
    return "fp8" if config.get("quant_method") == "fp8" and config.get("weight_block_size") == [128, 128] else ""


def _mxfp4_of_config(config: Mapping[str, Any]) -> str:
    return "mxfp4" if config.get("quant_method") == "mxfp4" else ""


_WORDS = ("I16", "I32", "I64")

SCHEMES = (
    _QuantizationScheme(
        name="bnb-int8",
        value_dtypes=("I8",),
        detect=detect.detect_bnb_int8,
        formats=(
            WeightFormat(
                name="bnb-int8",
                unpacked_dtype="F16",
                packing="bnb-int8",
                matrix_bytes=_bnb_int8_bytes,
                formula="out·in + 4·out + 1",
                compute_rate="int8",
            ),
        ),
        format_of_config=_bnb_8bit_of_config,
    ),
    _QuantizationScheme(
        name="bnb-",
        value_dtypes=("U8",),
        detect=detect.detect_bnb_4bit,
        formats=(
            WeightFormat(
                name="bnb-nf4",
                packing="bnb-nf4",
                matrix_bytes=_bnb_nf4_bytes,
                formula="out·in/2 + 4·⌈out·in/64⌉ + 64",
            ),
            WeightFormat(
                name="bnb-nf4-dq",
                packing="bnb-nf4",
                matrix_bytes=_bnb_nf4_dq_bytes,
                formula="out·in/2 + ⌈out·in/64⌉ + 4·⌈⌈out·in/64⌉/256⌉ + 1,088",
            ),
        ),
        format_of_config=_bnb_4bit_of_config,
    ),
    _QuantizationScheme(name="bitnet", value_dtypes=("U8", "F4"), detect=detect.detect_bitnet),
    _QuantizationScheme(
        name="awq",
        value_dtypes=(*_WORDS, "I8"),
        detect=detect.detect_awq_or_gptq,
        format_of_config=_group_format("awq"),
        scale_layouts=(_ScaleLayout(name="AWQ", elements=_awq_elements, formula="out·in/128 + out·in/1,024"),),
    ),
    _QuantizationScheme(
        name="gptq",
        value_dtypes=(*_WORDS, "I8"),
        detect=detect.detect_awq_or_gptq,
        format_of_config=_group_format("gptq"),
        scale_layouts=(
            _ScaleLayout(
                name="GPTQ",
                elements=lambda out, into: _awq_elements(out, into) + into,
                formula="out·in/128 + out·in/1,024 + in",
            ),
        ),
    ),
    _QuantizationScheme(name="marlin", value_dtypes=_WORDS, detect=detect.detect_marlin),
    _QuantizationScheme(name="compressed-int", value_dtypes=_WORDS, detect=detect.detect_compressed_tensors),
    _QuantizationScheme(name="mlx", value_dtypes=("U32",), detect=detect.detect_mlx),
    _QuantizationScheme(
        name="mxfp4",
        value_dtypes=("U8", "F4"),
        detect=detect.detect_mxfp4,
        formats=(
            WeightFormat(
                name="mxfp4",
                packing="mxfp4",
                matrix_bytes=_mxfp4_bytes,
                formula="out·⌈in/2⌉ + out·⌈in/32⌉",
                experts_only=True,
            ),
        ),
        format_of_config=_mxfp4_of_config,
        scale_suffixes=("_scales",),
    ),
    _QuantizationScheme(
        name="nvfp4",
        value_dtypes=("U8", "F4"),
        detect=detect.detect_nvfp4,
        formats=(
            WeightFormat(
                name="nvfp4",
                packing="nvfp4",
                matrix_bytes=_nvfp4_bytes,
                formula="out·⌈in/2⌉ + out·⌈in/16⌉ + 8",
                compute_rate="fp4",
            ),
        ),
    ),
    _QuantizationScheme(name="int8", value_dtypes=("I8",), detect=detect.detect_int8),
    _QuantizationScheme(
        name="fp8",
        value_dtypes=tuple(name for name in PLAIN if name.startswith("F8_")),
        detect=detect.detect_fp8,
        formats=(
            WeightFormat(
                name="fp8",
                packing="fp8",
                matrix_bytes=_fp8_bytes,
                formula="out·in + 4·⌈out/128⌉·⌈in/128⌉",
                compute_rate="fp8",
            ),
        ),
        format_of_config=_fp8_of_config,
        scale_layouts=(
            _ScaleLayout(
                name="blocks of 128×128",
                elements=lambda out, into: _ceil(out, 128) * _ceil(into, 128),
                formula="⌈out/128⌉·⌈in/128⌉",
            ),
            _ScaleLayout(name="rows", elements=lambda out, _: out, formula="out"),
            _ScaleLayout(name="matrices", elements=lambda *_: 1, formula="1"),
        ),
        scale_suffixes=(".weight_scale_inv", ".weight_scale", "_scale_inv", "_scale"),
    ),
    _QuantizationScheme(
        name="ggml",
        value_dtypes=tuple(x.name for x in GGML.values() if x.block > 1),
        detect=detect.detect_ggml,
    ),
)
"""All schemes; where several look at tensors of one dtype, the first that recognizes the tensor wins."""

SCHEME_BY_NAME = {x.name: x for x in SCHEMES}
SCALE_LAYOUTS = {layout.name: layout for scheme in SCHEMES for layout in scheme.scale_layouts}


def _detectors() -> dict[str, tuple[Callable[[Detection, Tensor], None], ...]]:
    by_dtype: dict[str, dict[Callable[[Detection, Tensor], None], None]] = {}
    for scheme in SCHEMES:
        for dtype in scheme.value_dtypes:
            by_dtype.setdefault(dtype, {})[scheme.detect] = None
    return {dtype: tuple(functions) for dtype, functions in by_dtype.items()}


_DETECTORS = _detectors()


def find_packings(tensors: Sequence[Tensor], config: Mapping[str, Any] | None = None) -> dict[str, Packing]:
    """Return the packing of each tensor that is part of a quantized weight, by name; `config` is the `quantization_config`."""
    if _DETECTORS.keys().isdisjoint({x.dtype for x in tensors}):
        return {}
    detection = Detection(tensors, config or {})
    for x in tensors:
        for function in _DETECTORS.get(x.dtype, ()):
            if x.name in detection.packings:
                break
            function(detection, x)
    if detection.packings and detection.has_cache_scales:
        detect.record_cache_scales(detection)
    return detection.packings


def format_of_config(config: Mapping[str, Any]) -> str:
    """Return the name of the weight format that a `quantization_config` declares, or an empty string if it is unknown."""
    names = (x.format_of_config(config) for x in SCHEMES if x.format_of_config is not None)
    return next((name for name in names if name), "")


_PLAIN_FORMATS = {
    "fp32": WeightFormat(name="fp32", unpacked_dtype="F32", packing="fp32", compute_rate="fp32"),
    "fp16": WeightFormat(name="fp16", unpacked_dtype="F16", packing="fp16"),
    "bf16": WeightFormat(name="bf16", unpacked_dtype="BF16", packing="bf16"),
}
_FIXED_FORMATS = _PLAIN_FORMATS | {x.name: x for scheme in SCHEMES for x in scheme.formats}
COMPUTE_RATES = {name: x.compute_rate for name, x in _FIXED_FORMATS.items() if x.compute_rate}
"""Weight format → the GPU rate that applies to products of its matrices; others are unpacked to 16 bits first."""
_ALIASES = {
    "float8": "fp8",
    "int8": "bnb-int8",
    "bnb-8bit": "bnb-int8",
    "nf4": "bnb-nf4",
    "bnb-4bit": "bnb-nf4",
    "nf4-dq": "bnb-nf4-dq",
}
_GROUPED = re.compile(r"(awq|gptq)(?:-([2348])bit)?(?:-g(\d{1,6}))?")
_GGUF_FILE_TYPES = {
    **{f"gguf-{x.lower()}": x for x in ("F32", "F16", "BF16")},
    **{x.lower(): x for x in FILE_TYPES if x not in PLAIN},
    **{x.lower(): to for x, to in DEFAULT_VARIANTS.items()},
    "gguf-mxfp4": "MXFP4_MOE",
}
"""Name → GGUF file type."""
_PURE_TYPES = tuple(x.name for x in GGML.values() if x.block > 1 and x.name not in ("Q8_1", "Q8_K"))
"""Block types that a whole file can have; the two left out are for intermediate results."""
WEIGHT_FORMATS = (
    *("fp32", "fp16", "bf16", "fp8", "bnb-int8", "bnb-nf4", "bnb-nf4-dq", "mxfp4", "nvfp4", "awq", "gptq"),
    *_GGUF_FILE_TYPES,
    *(f"{x.lower()}-pure" for x in _PURE_TYPES),
)
"""All names that `parse_weight_format` knows, without parameters."""
_FOUR_BITS = ("q4_k_m", "awq", "gptq", "bnb-nf4")
"""Schemes to suggest for names that only mention 4 bits."""


def parse_weight_format(name: str) -> WeightFormat:
    """Parse a dtype or quantization scheme: `bf16`, `fp8`, `awq`, `gptq-8bit-g32`, `q4_k_m`, `q4_k-pure`."""
    word = name.strip().lower()
    word = _ALIASES.get(word, word)
    if (dtype := find_dtype(word)) is not None and dtype.short_name in _PLAIN_FORMATS:
        return _PLAIN_FORMATS[dtype.short_name]
    if word in _FIXED_FORMATS:
        return _FIXED_FORMATS[word]
    if word in _GGUF_FILE_TYPES:
        file_type = _GGUF_FILE_TYPES[word]
        return WeightFormat(name=word if word.startswith("gguf") else file_type, unpacked_dtype="F32", gguf_file_type=file_type)
    if word.endswith("-pure") and word[:-5].upper() in _PURE_TYPES:
        return WeightFormat(name=word, unpacked_dtype="F32", gguf_file_type=word[:-5].upper(), is_pure=True)
    if match := _GROUPED.fullmatch(word):
        return _grouped_format(word, match[1], int(match[2] or 4), int(match[3] or 128))
    near = _FOUR_BITS if word in ("int4", "4bit", "4-bit", "q4") else nearest(word, WEIGHT_FORMATS)
    known = "known: bf16, fp16, fp32, fp8, bnb-int8, bnb-nf4, awq, gptq, mxfp4, q8_0, q4_k_m, …"
    hint = f"did you mean {', '.join(near)}?" if near else known
    raise LlamathError(f"unknown dtype or quantization scheme {safe(repr(name), 60)}", hint=hint)


def _grouped_format(name: str, method: str, bits: int, group: int) -> WeightFormat:
    if method == "awq" and bits != 4:
        raise LlamathError(f"AWQ has 4 bits, not {bits}", hint=f"gptq-{bits}bit")
    if not group or group % 32:
        raise LlamathError(f"expected a group size that is a multiple of 32 for {method}, found {group}", hint="-g32, -g64, -g128")
    zeros = "out/2" if bits == 4 else f"out·{bits}/8"
    formula = f"out·in·{bits}/8 + ⌈in/{group}⌉·(2·out + {zeros})" + (" + 4·in" if method == "gptq" else "")
    size = _awq_bytes(group) if method == "awq" else _gptq_bytes(bits, group)
    return WeightFormat(name=name, unpacked_dtype="F16", packing=method, matrix_bytes=size, formula=formula)
