"""Element types: how many bytes so many elements take. A type is a block of elements that takes a whole number of bytes."""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """`block` elements in `bytes` bytes."""

    name: str
    block: int
    bytes: int

    @property
    def bits(self) -> float:
        """Bits per element."""
        return self.bytes * 8 / self.block

    def size(self, elements: int) -> int:
        """The bytes that so many elements take, whole blocks only."""
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
"""Types of one element a block, by safetensors' names, which are used for every format here."""
PLAIN |= {"F4": DType("F4", 2, 1), "F6_E2M3": DType("F6_E2M3", 4, 3), "F6_E3M2": DType("F6_E3M2", 4, 3)}

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
"""GGUF's type numbers (ggml.h, ggml-common.h); those left out are types that GGUF dropped. Of Q8_1 the gguf package still says 40 bytes."""
DTYPES = PLAIN | {dtype.name: dtype for dtype in GGML.values()}
"""Every type that a `Tensor` may name."""
