"""A checkpoint's tensors: memory-mapped where the file has the dtype and alignment that torch
needs, else converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor

from ...analysis.check.verify.verified_checkpoint import StoredTensors
from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.formats.manifest import Tensor as Entry
from ...checkpoint.formats.number_arrays import StoredArray
from ...checkpoint.quantization.ggml_values import dequantize_ggml, swap_ggml_bytes
from ...checkpoint.quantization.packed_tensors import packed_weights
from ...checkpoint.tensor_reader import MergedTensor
from ...generation.mapped_files import MappedFiles
from ...utils.errors import LlamathError, safe
from .dequantize import dequantize

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
    "I64": torch.int64,
}
"""Torch dtypes by the manifest's names; F8_E8M0 is read as bytes."""
CHUNK_ELEMENTS = 1 << 20
"""Elements dequantized at once."""


class MappedTensors(MappedFiles):
    """The tensors of mapped files; writes to one never reach the file."""

    def bytes(self, x: Entry, dtype: torch.dtype = torch.uint8) -> Tensor:
        """Return a flat view of a tensor's bytes, or of its elements of this dtype."""
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # about a read-only mapping
            return torch.frombuffer(
                self.map_file(x.file)[0],
                dtype=dtype,
                count=x.bytes // dtype.itemsize,
                offset=x.start,
            )

    def plain_tensor(self, x: Entry) -> Tensor:
        """Return a tensor of a plain dtype, as a view where the file is little-endian and the
        tensor aligned.
        """
        dtype = TORCH_DTYPES[x.dtype]
        if not x.bytes:
            return torch.empty(x.shape, dtype=dtype)
        if self.map_file(x.file)[1] and dtype.itemsize > 1:
            flat = self.bytes(x).view(-1, dtype.itemsize).flip(1).view(dtype).flatten()
        elif x.start % dtype.itemsize:
            flat = self.bytes(x).clone().view(dtype)
        else:
            flat = self.bytes(x, dtype)
        return flat.view(x.shape) if x.strides is None else flat.as_strided(x.shape, x.strides)

    def dequantized_tensor(self, x: Entry, dtype: torch.dtype) -> Tensor:
        """Return a tensor of a ggml block type, dequantized."""
        block_type, (_, big_endian) = DTYPES[x.dtype], self.map_file(x.file)
        blocks, result = (
            self.bytes(x).view(-1, block_type.bytes),
            torch.empty(x.elements, dtype=dtype),
        )
        step = CHUNK_ELEMENTS // block_type.block
        for first in range(0, len(blocks), step):
            data = blocks[first : first + step].numpy()
            values = torch.from_numpy(
                dequantize_ggml(swap_ggml_bytes(data, x.dtype) if big_endian else data, x.dtype)
            ).flatten()
            result[first * block_type.block :][: len(values)] = values
        return result.view(x.shape)


class TensorsByName(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name, read on access; quantized weights are dequantized to
    `dtype`.

    `transposed` are the names of matrices that plain files store as [in, out].
    """

    def __init__(
        self,
        files: MappedTensors,
        stored: StoredTensors,
        dtype: torch.dtype,
        transposed: frozenset[str] = frozenset(),
    ) -> None:
        self.files, self.stored, self.dtype, self.transposed = files, stored, dtype, transposed
        self.packed = {
            name: x for name, x in packed_weights(stored.packings).items() if x.kind != "ggml"
        }

    def __getitem__(self, name: str) -> Tensor:
        if name in self.packed:
            return self._dequantize(name)
        merged = self.stored.tensors[name]
        parts = [self._read(x) for x in merged.parts]
        return parts[0] if len(parts) == 1 else torch.cat(_drop_copies(merged, parts), merged.axis)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.stored.tensors, *self.packed)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self, x: Entry) -> Tensor:
        return (
            self.files.plain_tensor(x)
            if x.dtype in TORCH_DTYPES
            else self.files.dequantized_tensor(x, self.dtype)
        )

    def _dequantize(self, name: str) -> Tensor:
        return dequantize(
            self.packed[name],
            self._stored_array,
            self.stored.quantization,
            self.dtype,
            name in self.transposed,
        )

    def _stored_array(self, name: str) -> StoredArray:
        x = self.stored.tensors[name].parts[0]
        if x.strides is not None:
            raise LlamathError(f"{safe(name)} is not contiguous", hint="save it with .contiguous()")
        return StoredArray(
            x.dtype, x.shape, memoryview(self.files.map_file(x.file)[0])[x.start : x.end]
        )


def _drop_copies(merged: MergedTensor, parts: list[Tensor]) -> list[Tensor]:
    """Return the parts of a tensor without the copies that several files contain, after checking
    that these are equal.
    """
    copies = sum(x.shape[0] for x in parts) // merged.shape[0] if merged.axis == 0 else 1
    for i, x in enumerate(parts):
        if i % copies and not torch.equal(x, parts[i - i % copies]):
            raise LlamathError(
                f"{safe(merged.name)} must be the same in all files, but differs",
                hint="are the files from one checkpoint?",
            )
    return parts[::copies]
