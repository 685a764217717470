"""The numbers in a checkpoint's files as tensors: mapped into memory where they can lie as they are, else worked out."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor

from ...checkpoint.formats import gguf
from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.formats.manifest import Tensor as Entry
from ...checkpoint.formats.source import LocalFile
from ...checkpoint.tensor_reader import MergedTensor
from ...core.errors import FormatError, LlamathError, safe
from .dequantize import PackedWeight, dequantize, scales_name
from .ggml_blocks import dequantize_blocks, to_little_endian
from .verified_checkpoint import StoredTensors

TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.uint8,
    "U8": torch.uint8,
    "I8": torch.int8,
}
"""Element types that torch has, by the manifest's names; of F8_E8M0 the bytes."""
CHUNK_ELEMENTS = 1 << 20
"""So many numbers of block types are worked out at once."""


class MappedFiles:
    """A checkpoint's files, each mapped once and for as long as a tensor lies in it; what is written to a tensor never reaches the file."""

    def __init__(self, manifest: Manifest) -> None:
        self._files, self._gguf = manifest.files, manifest.format == "gguf"
        self._known: dict[int, tuple[mmap.mmap, bool]] = {}

    def map_file(self, number: int) -> tuple[mmap.mmap, bool]:
        """The bytes of a file, and whether its numbers are big-endian."""
        if number not in self._known:
            self._known[number] = self._open(number)
        return self._known[number]

    def _open(self, number: int) -> tuple[mmap.mmap, bool]:
        name, size = self._files[number].name, self._files[number].size
        with LocalFile(name) as source:
            if source.size != size:
                raise FormatError("changed", f"{safe(name)} had {size:,} bytes when its header was read, and has {source.size:,}")
            swapped = self._gguf and gguf.preamble(source).order == ">"
        return _map(name, size), swapped

    def release_pages(self) -> None:
        """Let the system have back what was read; whoever wants it again reads it from the files again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapping, _ in self._known.values():
                mapping.madvise(mmap.MADV_DONTNEED)

    def bytes(self, x: Entry, kind: torch.dtype = torch.uint8) -> Tensor:
        """The bytes of a tensor in place, or what they are if each is a number of this type."""
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # of a mapping that cannot be written to
            return torch.frombuffer(self.map_file(x.file)[0], dtype=kind, count=x.bytes // kind.itemsize, offset=x.start)

    def plain_tensor(self, x: Entry) -> Tensor:
        """A tensor of a plain type, in place where its bytes are little-endian and begin where a number may."""
        kind = TORCH_DTYPES[x.dtype]
        if not x.bytes:
            return torch.empty(x.shape, dtype=kind)
        if self.map_file(x.file)[1] and kind.itemsize > 1:
            flat = self.bytes(x).view(-1, kind.itemsize).flip(1).view(kind).flatten()
        elif x.start % kind.itemsize:
            flat = self.bytes(x).clone().view(kind)
        else:
            flat = self.bytes(x, kind)
        return flat.view(x.shape) if x.strides is None else flat.as_strided(x.shape, x.strides)

    def dequantized_tensor(self, x: Entry, dtype: torch.dtype) -> Tensor:
        """A tensor of one of ggml's block types, in a plain one."""
        kind, (_, swapped) = DTYPES[x.dtype], self.map_file(x.file)
        rows, found = self.bytes(x).view(-1, kind.bytes), torch.empty(x.elements, dtype=dtype)
        step = CHUNK_ELEMENTS // kind.block
        for first in range(0, len(rows), step):
            data = rows[first : first + step]
            numbers = dequantize_blocks(to_little_endian(data, x.dtype) if swapped else data, x.dtype)
            found[first * kind.block :][: len(numbers)] = numbers
        return found.view(x.shape)


def _map(name: str, size: int) -> mmap.mmap:
    """A file's bytes, which may be written over here and stay as they are there; for reading alone where the system wants room for that."""
    problem: Exception | None = None
    for access in (mmap.ACCESS_COPY, mmap.ACCESS_READ):
        try:
            with open(name, "rb") as file:
                return mmap.mmap(file.fileno(), size, access=access)
        except (OSError, ValueError) as error:
            problem = error
    raise LlamathError(f"{safe(name)} cannot be mapped into memory: {problem}")


class TensorsByName(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name; packed ones as the weights that they stand for, in `dtype`, each when it is asked for."""

    def __init__(self, files: MappedFiles, held: StoredTensors, dtype: torch.dtype) -> None:
        self.files, self.stored, self.dtype = files, held, dtype
        self.packed = {x.weight: name for name, x in held.packings.items() if x.role == "values" and x.kind != "ggml"}

    def __getitem__(self, name: str) -> Tensor:
        if name in self.packed:
            return self._dequantize(name)
        whole = self.stored.tensors[name]
        parts = [self._read(x) for x in whole.parts]
        return parts[0] if len(parts) == 1 else torch.cat(_drop_copies(whole, parts), whole.axis)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.stored.tensors, *self.packed)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self, x: Entry) -> Tensor:
        return self.files.plain_tensor(x) if x.dtype in TORCH_DTYPES else self.files.dequantized_tensor(x, self.dtype)

    def _dequantize(self, name: str) -> Tensor:
        wholes, own = self.stored.tensors, self.packed[name]
        packing = self.stored.packings[own]
        values, factors = (self.files.plain_tensor(wholes[x].parts[0]) for x in (own, scales_name(packing, wholes)))
        return dequantize(PackedWeight(name, values, factors, self.stored.scale_block), packing.kind, self.dtype)


def _drop_copies(whole: MergedTensor, parts: list[Tensor]) -> list[Tensor]:
    """Parts of a tensor without copies of the one before, once they have been found to be that."""
    copies = sum(x.shape[0] for x in parts) // whole.shape[0] if whole.axis == 0 else 1
    for i, x in enumerate(parts):
        if i % copies and not torch.equal(x, parts[i - i % copies]):
            raise LlamathError(f"{safe(whole.name)} should be the same in several files, and is not", hint="are they of one checkpoint?")
    return parts[::copies]
