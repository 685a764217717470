"""The table of quantization schemes: the declaration, detection, layout, size and dequantization of
each.

A row of `SCHEMES` has all properties of one scheme. `find_packings` detects the schemes of a
checkpoint's tensors, `parse_weight_format` parses the names that users write, and
`recipes.read_recipe` reads a `quantization_config`. `dequantizers` has the dequantization by the
kind of a packing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...utils.errors import LlamathError, nearest, safe
from ...utils.record_type import Record
from ..formats.dtypes import GGML, PLAIN, find_dtype
from ..formats.manifest import Tensor
from . import detect
from .matrix_formats import (
    awq_format,
    bnb_4bit_format,
    bnb_int8_format,
    fp8_format,
    gptq_format,
    mlx_format,
    mxfp4_format,
    nvfp4_format,
)
from .packed_tensors import Detection, Packing
from .weight_format import PLAIN_FORMATS, WeightFormat

if TYPE_CHECKING:
    pass

_MatrixFunction = Callable[[int, int], int]
"""A number for a matrix of (outputs, inputs)."""


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
    scale_layouts: tuple[_ScaleLayout, ...] = ()


def _ceil(n: int, by: int) -> int:
    return -(-n // by)


def _awq_elements(group: int) -> _MatrixFunction:
    """A scale for each group, and eight zero points in a 32-bit number."""
    return lambda out, into: out * into // group + out * into // (8 * group)


def _gptq_elements(group: int) -> _MatrixFunction:
    """As AWQ, and the group of each input."""
    return lambda out, into: out * into // group + out * into // (8 * group) + into


_GROUPS = (128, 64, 32)
_WORDS = ("I16", "I32", "I64")

SCHEMES = (
    _QuantizationScheme(
        name="bnb-int8",
        value_dtypes=("I8",),
        detect=detect.detect_bnb_int8,
        formats=(
            WeightFormat(
                name="bnb-int8", unpacked_dtype="F16", packing="bnb-int8", matrix=bnb_int8_format()
            ),
        ),
    ),
    _QuantizationScheme(
        name="bnb-",
        value_dtypes=("U8",),
        detect=detect.detect_bnb_4bit,
        formats=(
            WeightFormat(name="bnb-nf4", packing="bnb-nf4", matrix=bnb_4bit_format()),
            WeightFormat(name="bnb-nf4-dq", packing="bnb-nf4", matrix=bnb_4bit_format(nested=True)),
            WeightFormat(name="bnb-fp4", packing="bnb-fp4", matrix=bnb_4bit_format("fp4")),
            WeightFormat(
                name="bnb-fp4-dq", packing="bnb-fp4", matrix=bnb_4bit_format("fp4", nested=True)
            ),
        ),
    ),
    _QuantizationScheme(name="bitnet", value_dtypes=("U8", "F4"), detect=detect.detect_bitnet),
    _QuantizationScheme(
        name="awq",
        value_dtypes=(*_WORDS, "I8"),
        detect=detect.detect_awq_or_gptq,
        scale_layouts=tuple(
            _ScaleLayout(
                name=f"AWQ, groups of {n}",
                elements=_awq_elements(n),
                formula=f"out·in/{n} + out·in/{8 * n:,}",
            )
            for n in _GROUPS
        ),
    ),
    _QuantizationScheme(
        name="gptq",
        value_dtypes=(*_WORDS, "I8"),
        detect=detect.detect_awq_or_gptq,
        scale_layouts=tuple(
            _ScaleLayout(
                name=f"GPTQ, groups of {n}",
                elements=_gptq_elements(n),
                formula=f"out·in/{n} + out·in/{8 * n:,} + in",
            )
            for n in _GROUPS
        ),
    ),
    _QuantizationScheme(name="sparse-24", value_dtypes=("U8",), detect=detect.detect_sparse_24),
    _QuantizationScheme(
        name="sparse-bitmask", value_dtypes=("U8",), detect=detect.detect_sparse_bitmask
    ),
    _QuantizationScheme(name="marlin-24", value_dtypes=("I32",), detect=detect.detect_marlin_24),
    _QuantizationScheme(name="marlin", value_dtypes=_WORDS, detect=detect.detect_marlin),
    _QuantizationScheme(
        name="compressed-int", value_dtypes=_WORDS, detect=detect.detect_compressed_tensors
    ),
    _QuantizationScheme(name="mlx", value_dtypes=("U32",), detect=detect.detect_mlx),
    _QuantizationScheme(
        name="mxfp4",
        value_dtypes=("U8", "F4"),
        detect=detect.detect_mxfp4,
        formats=(
            WeightFormat(name="mxfp4", packing="mxfp4", matrix=mxfp4_format(), experts_only=True),
        ),
        scale_layouts=(
            _ScaleLayout(
                name="MXFP4",
                elements=lambda out, into: out * _ceil(into, 32),
                formula="out·⌈in/32⌉",
            ),
        ),
    ),
    _QuantizationScheme(
        name="nvfp4",
        value_dtypes=("U8", "F4"),
        detect=detect.detect_nvfp4,
        formats=(WeightFormat(name="nvfp4", packing="nvfp4", matrix=nvfp4_format()),),
        scale_layouts=(
            _ScaleLayout(
                name="NVFP4",
                elements=lambda out, into: out * _ceil(into, 16) + 2,
                formula="out·⌈in/16⌉ + 2",
            ),
        ),
    ),
    _QuantizationScheme(name="eetq", value_dtypes=("I8",), detect=detect.detect_eetq),
    _QuantizationScheme(name="hqq", value_dtypes=("U8", "I32"), detect=detect.detect_hqq),
    _QuantizationScheme(
        name="torchao", value_dtypes=("I8", "F8_E4M3"), detect=detect.detect_torchao
    ),
    _QuantizationScheme(name="int4-awq", value_dtypes=("U8",), detect=detect.detect_int4_awq),
    _QuantizationScheme(name="mxfp6", value_dtypes=("U8",), detect=detect.detect_mxfp6),
    _QuantizationScheme(name="quark-int4", value_dtypes=("I32",), detect=detect.detect_quark_int4),
    _QuantizationScheme(name="int8", value_dtypes=("I8",), detect=detect.detect_int8),
    _QuantizationScheme(
        name="fp8",
        value_dtypes=tuple(name for name in PLAIN if name.startswith("F8_")),
        detect=detect.detect_fp8,
        formats=(WeightFormat(name="fp8", packing="fp8", matrix=fp8_format()),),
        scale_layouts=(
            _ScaleLayout(
                name="blocks of 128×128",
                elements=lambda out, into: _ceil(out, 128) * _ceil(into, 128),
                formula="⌈out/128⌉·⌈in/128⌉",
            ),
            _ScaleLayout(name="rows", elements=lambda out, _: out, formula="out"),
            _ScaleLayout(name="matrices", elements=lambda *_: 1, formula="1"),
        ),
    ),
    _QuantizationScheme(
        name="ggml",
        value_dtypes=tuple(x.name for x in GGML.values() if x.block > 1),
        detect=detect.detect_ggml,
    ),
)
"""All schemes; where several look at tensors of one dtype, the first that recognizes the tensor
wins."""

SCALE_LAYOUTS = {layout.name: layout for scheme in SCHEMES for layout in scheme.scale_layouts}


def _detectors() -> dict[str, tuple[Callable[[Detection, Tensor], None], ...]]:
    by_dtype: dict[str, dict[Callable[[Detection, Tensor], None], None]] = {}
    for scheme in SCHEMES:
        for dtype in scheme.value_dtypes:
            by_dtype.setdefault(dtype, {})[scheme.detect] = None
    return {dtype: tuple(functions) for dtype, functions in by_dtype.items()}


_DETECTORS = _detectors()


def find_packings(
    tensors: Sequence[Tensor], config: Mapping[str, Any] | None = None
) -> dict[str, Packing]:
    """Return the packing of each tensor that is part of a quantized weight, by name; `config` is
    the `quantization_config`.
    """
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


_FIXED_FORMATS = PLAIN_FORMATS | {x.name: x for scheme in SCHEMES for x in scheme.formats}
COMPUTE_RATES = {name: x.compute_rate for name, x in _FIXED_FORMATS.items() if x.compute_rate}
"""Weight format → the GPU rate that applies to products of its matrices; others are unpacked to
16 bits first."""
_ALIASES = {
    "float8": "fp8",
    "int8": "bnb-int8",
    "bnb-8bit": "bnb-int8",
    "nf4": "bnb-nf4",
    "bnb-4bit": "bnb-nf4",
    "nf4-dq": "bnb-nf4-dq",
}
_GROUPED = re.compile(r"(awq|gptq)(?:-([2348])bit)?(?:-g(\d{1,6}))?")
_MLX = re.compile(r"mlx-([234568])bit(?:-g(32|64|128))?")
_UNIFORM = (
    "F32 F16 BF16 Q1_0 Q2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q6_K TQ1_0 TQ2_0 IQ1_S IQ1_M IQ2_XXS "
    "IQ2_XS IQ3_XXS IQ3_S IQ4_NL IQ4_XS NVFP4"
)
_MIXED = {
    "Q2_K": "Q2_K Q2_K_S",
    "Q3_K": "Q3_K_S Q3_K_M Q3_K_L",
    "Q4_K": "Q4_K_S Q4_K_M",
    "Q5_K": "Q5_K_S Q5_K_M",
    "IQ2_XS": "IQ2_S",
    "IQ2_S": "IQ2_M",
    "IQ3_S": "IQ3_XS IQ3_M",
    "MXFP4": "MXFP4_MOE",
}
FILE_TYPES = {x: x for x in _UNIFORM.split()} | {
    x: base for base, names in _MIXED.items() for x in names.split()
}
"""File type → its default block type."""
_DEFAULT_VARIANTS = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
"""Block types that `llama-quantize` accepts as names of file types."""
_GGUF_FILE_TYPES = {
    **{f"gguf-{x.lower()}": x for x in ("F32", "F16", "BF16")},
    **{x.lower(): x for x in FILE_TYPES if x not in PLAIN},
    **{x.lower(): to for x, to in _DEFAULT_VARIANTS.items()},
    "gguf-mxfp4": "MXFP4_MOE",
}
"""Name → GGUF file type."""
_PURE_TYPES = tuple(x.name for x in GGML.values() if x.block > 1 and x.name not in ("Q8_1", "Q8_K"))
"""Block types that a whole file can have; the two left out are for intermediate results."""
WEIGHT_FORMATS = (
    *(
        "fp32",
        "fp16",
        "bf16",
        "fp8",
        "bnb-int8",
        "bnb-nf4",
        "bnb-nf4-dq",
        "mxfp4",
        "nvfp4",
        "awq",
        "gptq",
        "mlx-4bit",
        "mlx-8bit",
    ),
    *_GGUF_FILE_TYPES,
    *(f"{x.lower()}-pure" for x in _PURE_TYPES),
)
"""All names that `parse_weight_format` knows, without parameters."""
_FOUR_BITS = ("q4_k_m", "awq", "gptq", "bnb-nf4")
"""Schemes to suggest for names that only mention 4 bits."""


def parse_weight_format(name: str) -> WeightFormat:
    """Parse a dtype or quantization scheme: `bf16`, `fp8`, `awq`, `gptq-8bit-g32`, `q4_k_m`,
    `q4_k-pure`.
    """
    word = name.strip().lower()
    word = _ALIASES.get(word, word)
    if (dtype := find_dtype(word)) is not None and dtype.short_name in PLAIN_FORMATS:
        return PLAIN_FORMATS[dtype.short_name]
    if word in _FIXED_FORMATS:
        return _FIXED_FORMATS[word]
    if word in _GGUF_FILE_TYPES:
        file_type = _GGUF_FILE_TYPES[word]
        return WeightFormat(
            name=word if word.startswith("gguf") else file_type,
            unpacked_dtype="F32",
            gguf_file_type=file_type,
        )
    if word.endswith("-pure") and word[:-5].upper() in _PURE_TYPES:
        return WeightFormat(
            name=word, unpacked_dtype="F32", gguf_file_type=word[:-5].upper(), is_pure=True
        )
    if match := _GROUPED.fullmatch(word):
        return _grouped_format(word, match[1], int(match[2] or 4), int(match[3] or 128))
    if match := _MLX.fullmatch(word):
        return _mlx_format(word, int(match[1]), int(match[2] or 64))
    near = _FOUR_BITS if word in ("int4", "4bit", "4-bit", "q4") else nearest(word, WEIGHT_FORMATS)
    known = "known: bf16, fp16, fp32, fp8, bnb-int8, bnb-nf4, awq, gptq, mxfp4, q8_0, q4_k_m, …"
    hint = f"did you mean {', '.join(near)}?" if near else known
    raise LlamathError(f"unknown dtype or quantization scheme {safe(repr(name), 60)}", hint=hint)


def _mlx_format(name: str, bits: int, group: int) -> WeightFormat:
    """Return what mlx_lm.convert writes by default: linear layers and embeddings in groups, and
    gates that are linear layers in 8 bits.
    """
    from .recipes import Choice, Matrix, read_recipe

    recipe = read_recipe({"bits": bits, "group_size": group}, is_mlx=True)
    gates = mlx_format(8, 64)

    def choose(x: Matrix) -> Choice:
        is_gate = x.kind == "router" or x.names[0].endswith("shared_expert_gate")
        return Choice(gates) if is_gate and not x.in_gate_class else recipe.choose(x)

    return WeightFormat(name=name, recipe=recipe.replace(choose=choose))


def _grouped_format(name: str, method: str, bits: int, group: int) -> WeightFormat:
    if method == "awq" and bits != 4:
        raise LlamathError(f"AWQ has 4 bits, not {bits}", hint=f"gptq-{bits}bit")
    if not group or group % 32:
        raise LlamathError(
            f"expected a group size that is a multiple of 32 for {method}, found {group}",
            hint="-g32, -g64, -g128",
        )
    matrix = awq_format(4, group) if method == "awq" else gptq_format(bits, group)
    return WeightFormat(name=name, unpacked_dtype="F16", packing=method, matrix=matrix)
