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
