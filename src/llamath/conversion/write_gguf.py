"""GGUF files, version 3, little-endian, as ggml/docs/gguf.md has them: header, metadata, tensor table, then tensors at multiples of 32."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..checkpoint.formats.dtypes import GGML
from ..checkpoint.formats.gguf_values import ARRAY, BOOL, KINDS, STRING, Kind
from ..core.errors import ConvertError
from .target_files import ConcatFile
from .tensor_plan import OutputTensor
from .write_gguf_keys import Key

VERSION, ALIGNMENT, MAX_NAME = 3, 32, 63
TYPES = {dtype.name: number for number, dtype in GGML.items()}


def gguf_file(name: str, keys: Sequence[Key], entries: Sequence[OutputTensor]) -> ConcatFile:
    """One file with this metadata and these tensors."""
    head = [b"GGUF" + struct.pack("<IQQ", VERSION, len(entries), len(keys)), *(_metadata_entry(x) for x in keys)]
    at = 0
    for x in entries:
        head.append(_tensor_info(x, at))
        at += x.bytes + -x.bytes % ALIGNMENT
    start = b"".join(head)
    pieces: list[bytes | OutputTensor] = [start + bytes(-len(start) % ALIGNMENT)]
    for x in entries:
        pieces += [x, bytes(-x.bytes % ALIGNMENT)]
    return ConcatFile(name, pieces)


def _tensor_info(x: OutputTensor, at: int) -> bytes:
    """A line of the tensor table; dimensions innermost first."""
    if len(x.name.encode()) > MAX_NAME or len(x.shape) > 4:
        raise ConvertError(f"{x.name}: GGUF has names of at most {MAX_NAME} bytes and tensors of at most 4 dimensions")
    return (
        struct.pack("<Q", len(x.name))
        + x.name.encode()
        + struct.pack(f"<I{len(x.shape)}QIQ", len(x.shape), *x.shape[::-1], TYPES[x.dtype], at)
    )


def _metadata_entry(x: Key) -> bytes:
    name = struct.pack("<Q", len(x.name)) + x.name.encode()
    if not x.array:
        return name + struct.pack("<I", KINDS.index(x.kind)) + _values(x.kind, [x.value])
    return name + struct.pack("<IIQ", KINDS.index(ARRAY), KINDS.index(x.kind), len(x.value)) + _values(x.kind, x.value)


def _values(kind: Kind, values: Sequence[object]) -> bytes:
    if kind is STRING:
        texts = [x if isinstance(x, bytes) else str(x).encode() for x in values]
        return b"".join(struct.pack("<Q", len(x)) + x for x in texts)
    return struct.pack(f"<{len(values)}{'?' if kind is BOOL else kind.code}", *values)
