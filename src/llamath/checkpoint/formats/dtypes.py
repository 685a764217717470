"""Element types: their sizes in bytes, and their spellings by users, configs and files."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...utils.errors import LlamathError, nearest, safe


class DType(NamedTuple):
    """`block` elements take `bytes` bytes."""

    name: str
    block: int
    bytes: int

    @property
    def bits(self) -> float:
        """Bits per element."""
        return self.bytes * 8 / self.block

    @property
    def short_name(self) -> str:
        """The name that users and inference engines use: `bf16`, `fp8`, `q8_0`."""
        return _SHORT_NAMES.get(self.name, self.name.lower())

    def size(self, elements: int) -> int:
        """Return the bytes that `elements` take, in whole blocks."""
        return -(-elements // self.block) * self.bytes


PLAIN = {
    name: DType(name, 1, size)
    for size, names in {
        1: "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
        2: "U16 I16 F16 BF16",
        4: "U32 I32 F32",
        8: "U64 I64 F64 C64",
    }.items()
    for name in names.split()
}
"""Unblocked types by their safetensors name, which is the canonical name for every format here."""
PLAIN |= {
    "F4": DType("F4", 2, 1),
    "F6_E2M3": DType("F6_E2M3", 4, 3),
    "F6_E3M2": DType("F6_E3M2", 4, 3),
}
PLAIN_FLOATS = frozenset(("F64", "F32", "F16", "BF16"))
"""Dtypes of weights that are not quantized."""

GGML = {
    0: PLAIN["F32"],
    1: PLAIN["F16"],
    2: DType("Q4_0", 32, 18),
    3: DType("Q4_1", 32, 20),
    6: DType("Q5_0", 32, 22),
    7: DType("Q5_1", 32, 24),
    8: DType("Q8_0", 32, 34),
    9: DType("Q8_1", 32, 36),
    10: DType("Q2_K", 256, 84),
    11: DType("Q3_K", 256, 110),
    12: DType("Q4_K", 256, 144),
    13: DType("Q5_K", 256, 176),
    14: DType("Q6_K", 256, 210),
    15: DType("Q8_K", 256, 292),
    16: DType("IQ2_XXS", 256, 66),
    17: DType("IQ2_XS", 256, 74),
    18: DType("IQ3_XXS", 256, 98),
    19: DType("IQ1_S", 256, 50),
    20: DType("IQ4_NL", 32, 18),
    21: DType("IQ3_S", 256, 110),
    22: DType("IQ2_S", 256, 82),
    23: DType("IQ4_XS", 256, 136),
    24: PLAIN["I8"],
    25: PLAIN["I16"],
    26: PLAIN["I32"],
    27: PLAIN["I64"],
    28: PLAIN["F64"],
    29: DType("IQ1_M", 256, 56),
    30: PLAIN["BF16"],
    34: DType("TQ1_0", 256, 54),
    35: DType("TQ2_0", 256, 66),
    39: DType("MXFP4", 32, 17),
    40: DType("NVFP4", 64, 36),
    41: DType("Q1_0", 128, 18),
    42: DType("Q2_0", 64, 18),
}
"""GGUF type number → type (ggml.h, ggml-common.h), without types that GGUF has removed. The gguf
package still says 40 bytes for Q8_1."""
DTYPES = PLAIN | {dtype.name: dtype for dtype in GGML.values()}
"""Every type that a `Tensor` can have, by canonical name."""

_SHORT_NAMES = {
    "F64": "fp64",
    "F32": "fp32",
    "F16": "fp16",
    "F8_E4M3": "fp8",
    "I8": "int8",
    "U8": "uint8",
}
_ALIASES = {
    "F64": "fp64 float64 double",
    "F32": "fp32 float32 float single",
    "F16": "fp16 float16 half",
    "BF16": "bfloat16",
    "F8_E4M3": "fp8 float8 e4m3 fp8_e4m3 fp8_e4m3fn f8_e4m3fn float8_e4m3 float8_e4m3fn",
    "F8_E5M2": "e5m2 fp8_e5m2 float8_e5m2",
    "F8_E8M0": "e8m0 float8_e8m0fnu",
    "I8": "int8",
    "U8": "uint8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
}
_BY_SPELLING = {name.lower(): dtype for name, dtype in DTYPES.items()}
_BY_SPELLING |= {
    alias: DTYPES[name] for name, aliases in _ALIASES.items() for alias in aliases.split()
}


def find_dtype(text: str) -> DType | None:
    """Return the type with this name in any usual spelling (`f16`, `fp16`, `float16`, `half`,
    `torch.float16`), or None.
    """
    return _BY_SPELLING.get(text.strip().lower().removeprefix("torch."))


def parse_dtype(text: str, allowed: Collection[str] = (), use: str = "") -> DType:
    """Return the type with this name in any usual spelling; `allowed` holds the canonical names
    that are supported for this `use`.
    """
    dtype = find_dtype(text)
    if dtype is not None and (not allowed or dtype.name in allowed):
        return dtype
    known = [DTYPES[name].short_name for name in allowed] or list(_BY_SPELLING)
    near = nearest(text.strip().lower(), known)
    expected = known if allowed else ["bf16", "fp16", "fp32", "fp8", "int8", "q8_0"]
    hint = f"did you mean {' or '.join(near)}?" if near else f"expected {', '.join(expected)}"
    if dtype is not None:
        raise LlamathError(
            f"dtype {dtype.short_name} is not supported{use and f' for {use}'}",
            hint=f"expected {', '.join(known)}",
        )
    raise LlamathError(f"unknown dtype {safe(repr(text), 60)}{use and f' for {use}'}", hint=hint)
