"""Writes GGUF files (version 3, little-endian; ggml/docs/gguf.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ...checkpoint.formats.dtypes import GGML
from ...checkpoint.formats.gguf import ARRAY, BOOL, FLOAT32, INT32, KINDS, STRING, UINT32, Kind
from ...checkpoint.gguf_metadata.gguf_keys import MetadataValue
from ...model import FamilyModel
from ...utils.errors import ConvertError
from ..gguf_model_keys import GGUFKeys
from ..tensor_plan import OutputTensor
from .output_files import ConcatFile

_VERSION, _ALIGNMENT, _MAX_NAME_BYTES, _MAX_DIMENSIONS = 3, 32, 63, 4
_TYPE_NUMBERS = {dtype.name: number for number, dtype in GGML.items()}
_FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
    "Q3_K": 12, "Q4_K": 14, "Q4_K_S": 14,
    "Q4_K_M": 15, "Q5_K": 16, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30,
    "BF16": 32, "TQ1_0": 36, "TQ2_0": 37,
    "MXFP4": 38,
}  # fmt: skip
"""Types of most matrices → `general.file_type` (llama_ftype in llama.h)."""
_KINDS = ((bool, BOOL), (int, UINT32), (float, FLOAT32), (str, STRING))
_QUANTIZATION_VERSION = 2


def gguf_file(
    name: str, metadata: Sequence[MetadataValue], tensors: Sequence[OutputTensor]
) -> ConcatFile:
    """Return a GGUF file: header, metadata, tensor infos, then the tensors at multiples of 32
    bytes.
    """
    head = [
        b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)),
        *map(_metadata_entry, metadata),
    ]
    at = 0
    for x in tensors:
        head.append(_tensor_info(x, at))
        at += x.size + -x.size % _ALIGNMENT
    start = b"".join(head)
    parts: list[bytes | OutputTensor] = [start + bytes(-len(start) % _ALIGNMENT)]
    for x in tensors:
        parts += [x, bytes(-x.size % _ALIGNMENT)]
    return ConcatFile(name, parts)


def model_metadata(model: FamilyModel, written: GGUFKeys, dtype: str) -> Iterator[MetadataValue]:
    """Yield the metadata of a model in a file whose matrices have this type."""
    yield MetadataValue("general.architecture", STRING, written.arch)
    yield MetadataValue("general.type", STRING, "model")
    yield MetadataValue("general.name", STRING, model.name)
    if dtype in _FILE_TYPES:
        yield MetadataValue("general.file_type", UINT32, _FILE_TYPES[dtype])
    yield MetadataValue("general.quantization_version", UINT32, _QUANTIZATION_VERSION)
    for key, x in written.keys.items():
        is_array = isinstance(x, list)
        first = x[0] if is_array else x
        kind = next(kind for value_type, kind in _KINDS if isinstance(first, value_type))
        yield MetadataValue(
            f"{written.arch}.{key}", INT32 if is_array and kind is UINT32 else kind, x, is_array
        )


def _tensor_info(x: OutputTensor, at: int) -> bytes:
    """Return the info of one tensor; its dimensions are written innermost first."""
    if len(x.name.encode()) > _MAX_NAME_BYTES or len(x.shape) > _MAX_DIMENSIONS:
        raise ConvertError(
            f"{x.name}: GGUF allows names of {_MAX_NAME_BYTES} bytes and tensors "
            f"of {_MAX_DIMENSIONS} dimensions"
        )
    shape = struct.pack(
        f"<I{len(x.shape)}QIQ", len(x.shape), *x.shape[::-1], _TYPE_NUMBERS[x.dtype], at
    )
    return struct.pack("<Q", len(x.name)) + x.name.encode() + shape


def _metadata_entry(x: MetadataValue) -> bytes:
    name = struct.pack("<Q", len(x.name)) + x.name.encode()
    if not x.array:
        return name + struct.pack("<I", KINDS.index(x.kind)) + _pack_values(x.kind, [x.value])
    return (
        name
        + struct.pack("<IIQ", KINDS.index(ARRAY), KINDS.index(x.kind), len(x.value))
        + _pack_values(x.kind, x.value)
    )


def _pack_values(kind: Kind, values: Sequence[object]) -> bytes:
    if kind is STRING:
        texts = [x if isinstance(x, bytes) else str(x).encode() for x in values]
        return b"".join(struct.pack("<Q", len(x)) + x for x in texts)
    return struct.pack(f"<{len(values)}{'?' if kind is BOOL else kind.code}", *values)
