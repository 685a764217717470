"""The names of weight formats that users write: dtypes, formats of a producer, and GGUF file
types.
"""

from __future__ import annotations

from functools import cache

from ...utils.errors import LlamathError, nearest, safe
from ..formats.dtypes import GGML, PLAIN, find_dtype
from .registry import named_format
from .weight_format import PLAIN_FORMATS, WeightFormat

_ALIASES = {
    "float8": "fp8",
    "int8": "bnb-int8",
    "bnb-8bit": "bnb-int8",
    "nf4": "bnb-nf4",
    "bnb-4bit": "bnb-nf4",
    "nf4-dq": "bnb-nf4-dq",
}
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
    """Parse a dtype or a format: `bf16`, `fp8`, `awq`, `gptq-8bit-g32`, `q4_k_m`, `q4_k-pure`."""
    word = name.strip().lower()
    word = _ALIASES.get(word, word)
    if (dtype := find_dtype(word)) is not None and dtype.short_name in PLAIN_FORMATS:
        return PLAIN_FORMATS[dtype.short_name]
    if (found := named_format(word)) is not None:
        return found
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
    near = _FOUR_BITS if word in ("int4", "4bit", "4-bit", "q4") else nearest(word, WEIGHT_FORMATS)
    known = "known: bf16, fp16, fp32, fp8, bnb-int8, bnb-nf4, awq, gptq, mxfp4, q8_0, q4_k_m, …"
    hint = f"did you mean {', '.join(near)}?" if near else known
    raise LlamathError(f"unknown dtype or quantization scheme {safe(repr(name), 60)}", hint=hint)


@cache
def compute_rate(name: str) -> str:
    """Return the GPU rate that applies to products of the matrices of a format; empty if they are
    unpacked to 16 bits first.
    """
    found = PLAIN_FORMATS.get(name) or named_format(name)
    return found.compute_rate if found is not None else ""
