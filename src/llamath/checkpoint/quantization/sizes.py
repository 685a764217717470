"""How many bytes a matrix takes under each dtype and each scheme of quantisation, scales and zero points included.

The layouts are those that `codec` reads: what AutoAWQ, AutoGPTQ, bitsandbytes, transformers and ModelOpt write beside the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...core.errors import LlamathError, nearest, safe
from ...core.record_type import Record
from ..formats.dtypes import GGML, PLAIN, find_dtype
from .gguf_mixes import DEFAULT_VARIANTS, FILE_TYPES

Bytes = Callable[[int, int], int]


class WeightFormat(Record):
    """How weights are kept: those of linear maps as `bytes` of (rows, columns) says, all others in the plain type `rest`."""

    name: str
    unpacked_dtype: str = "BF16"
    packing: str = ""  # what the values are kept as, as `codec` names it
    matrix_bytes: Bytes | None = None  # None: everything is in `rest`
    formula: str = ""  # of the bytes of a matrix `[out, in]`
    experts_only: bool = False  # of a mixture, the experts alone are packed
    gguf_file_type: str = ""  # a file type of GGUF instead, with llama.cpp's choice for every tensor
    is_pure: bool = False  # of that file type: every matrix that is quantised has its type

    @property
    def compute_dtype(self) -> str:
        """The plain type that activations are in: what is not quantised, where that is floating."""
        return (
            "F32"
            if self.unpacked_dtype == "F32" and not self.gguf_file_type
            else "F16"
            if self.gguf_file_type or self.unpacked_dtype == "F16"
            else "BF16"
        )


def _over(n: int, by: int) -> int:
    return -(-n // by)


def _fp8(out: int, into: int) -> int:
    return out * into + 4 * _over(out, 128) * _over(into, 128)


def _awq(group: int) -> Bytes:
    return lambda out, into: out * into // 2 + _over(into, group) * (2 * out + _over(out, 8) * 4)


def _gptq(bits: int, group: int) -> Bytes:
    def size(out: int, into: int) -> int:
        groups = _over(into, group)
        return 4 * _over(into * bits, 32) * out + groups * (2 * out + 4 * _over(out * bits, 32)) + 4 * into

    return size


def _bnb(out: int, into: int) -> int:
    return _over(out * into, 2) + 4 * _over(out * into, 64) + 64


def _bnb_double(out: int, into: int) -> int:
    blocks = _over(out * into, 64)
    return _over(out * into, 2) + blocks + 4 * _over(blocks, 256) + 64 + 1024


def _mxfp4(out: int, into: int) -> int:
    return out * (_over(into, 2) + _over(into, 32))


def _nvfp4(out: int, into: int) -> int:
    return out * (_over(into, 2) + _over(into, 16)) + 8


PLAINLY = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}
ALSO = {
    "float8": "fp8",
    **dict.fromkeys(("int8", "bnb-8bit"), "bnb-int8"),
    **dict.fromkeys(("nf4", "bnb-4bit"), "bnb-nf4"),
    "nf4-dq": "bnb-nf4-dq",
}
"""Other words for them."""
DOUBLE = "out·in/2 + ⌈out·in/64⌉ + 4·⌈⌈out·in/64⌉/256⌉ + 1,088"
PACKED = {
    "fp8": ("BF16", "fp8", _fp8, "out·in + 4·⌈out/128⌉·⌈in/128⌉", False),
    "bnb-int8": ("F16", "bnb-int8", lambda out, into: out * into + 4 * out + 1, "out·in + 4·out + 1", False),
    "bnb-nf4": ("BF16", "bnb-nf4", _bnb, "out·in/2 + 4·⌈out·in/64⌉ + 64", False),
    "bnb-nf4-dq": ("BF16", "bnb-nf4", _bnb_double, DOUBLE, False),
    "mxfp4": ("BF16", "mxfp4", _mxfp4, "out·⌈in/2⌉ + out·⌈in/32⌉", True),
    "nvfp4": ("BF16", "nvfp4", _nvfp4, "out·⌈in/2⌉ + out·⌈in/16⌉ + 8", False),
}
"""Name → the type of the rest, the kind of codec, the bytes of a matrix, their formula, and whether experts alone are packed."""
GROUPED = re.compile(r"(awq|gptq)(?:-([2348])bit)?(?:-g(\d{1,6}))?")
GGUF = {
    **{f"gguf-{x.lower()}": x for x in ("F32", "F16", "BF16")},
    **{x.lower(): x for x in FILE_TYPES if x not in PLAIN},
    **{x.lower(): to for x, to in DEFAULT_VARIANTS.items()},
    "gguf-mxfp4": "MXFP4_MOE",
}
"""Name → file type of GGUF."""
PURE = tuple(x.name for x in GGML.values() if x.block > 1 and x.name not in ("Q8_1", "Q8_K"))
"""Block types that a whole file can be of; the two left out are for sums at run time."""
WEIGHT_FORMATS = (*PLAINLY, *PACKED, "awq", "gptq", *GGUF, *(f"{x.lower()}-pure" for x in PURE))


def parse_weight_format(name: str) -> WeightFormat:
    """What a dtype or scheme is: `bf16`, `fp8`, `awq`, `gptq-8bit-g32`, `q4_k_m`, `q4_k-pure`."""
    word = name.strip().lower()
    word = ALSO.get(word, word)
    if (dtype := find_dtype(word)) is not None and dtype.name in PLAINLY.values():
        return WeightFormat(name=dtype.short_name, unpacked_dtype=dtype.name, packing=dtype.short_name)
    if word in PACKED:
        rest, codec, size, formula, experts = PACKED[word]
        return WeightFormat(name=word, unpacked_dtype=rest, packing=codec, matrix_bytes=size, formula=formula, experts_only=experts)
    if word in GGUF:
        return WeightFormat(name=GGUF[word] if not word.startswith("gguf") else word, unpacked_dtype="F32", gguf_file_type=GGUF[word])
    if word.endswith("-pure") and word[:-5].upper() in PURE:
        return WeightFormat(name=word, unpacked_dtype="F32", gguf_file_type=word[:-5].upper(), is_pure=True)
    if found := GROUPED.fullmatch(word):
        return _in_groups(word, found[1], int(found[2] or 4), int(found[3] or 128))
    near = nearest(word, WEIGHT_FORMATS)
    hint = (
        f"did you mean {', '.join(near)}?" if near else "known: bf16, fp16, fp32, fp8, bnb-int8, bnb-nf4, awq, gptq, mxfp4, q8_0, q4_k_m, …"
    )
    raise LlamathError(f"unknown dtype or quantization scheme {safe(repr(name), 60)}", hint=hint)


def _in_groups(name: str, kind: str, bits: int, group: int) -> WeightFormat:
    if kind == "awq" and bits != 4:
        raise LlamathError(f"AWQ has 4 bits, not {bits}", hint=f"gptq-{bits}bit")
    if not group or group % 32:
        raise LlamathError(f"a group of {group} weights is none that {kind} is made with", hint="-g32, -g64, -g128")
    zeros = "out/2" if bits == 4 else f"out·{bits}/8"
    formula = f"out·in·{bits}/8 + ⌈in/{group}⌉·(2·out + {zeros})" + (" + 4·in" if kind == "gptq" else "")
    size = _awq(group) if kind == "awq" else _gptq(bits, group)
    return WeightFormat(name=name, unpacked_dtype="F16", packing=kind, matrix_bytes=size, formula=formula)
