"""Writes checkpoints of Meta's reference implementation: `consolidated.00.pth` and `params.json`.

A .pth file is a ZIP archive of stored members as torch 1.6 and later write it
(`torch/serialization.py`, caffe2's `inline_container.cc`): one member with the names and one with
the bytes of each tensor, at multiples of 64 bytes, with zip64 records where sizes need them. The
pickle in `data.pkl` has only the opcodes that torch.save writes for a dictionary of tensors.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from ...analysis.understand.config_report import params_json
from ...checkpoint.meta_args import LLAMA3_ROPE_SCALING, config_to_args
from ...checkpoint.tensor_reader import TensorReader
from ...core.blocks import Attention, Decoder, Layer
from ...core.config import Config
from ...utils.errors import ConvertError
from ..conversion_source import ConversionSource
from ..tensor_plan import OutputTensor
from .output_files import Sink

_ALIGNMENT = 64
_STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage"}
_ZIP64 = 0xFFFFFFFF
_DATE = 0x21  # 1 January 1980, so that the same checkpoint gives the same bytes
_END_BYTES = 56 + 20 + 22
_CHECKSUM_OFFSET = 14


class _Member(NamedTuple):
    """A member of the archive, and its start."""

    name: bytes
    content: bytes | OutputTensor
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + len(_local_header(self, 0)) + self.size


class TorchArchive:
    """A .pth file with these tensors; those that share their data with another tensor have no
    bytes of their own.
    """

    def __init__(self, name: str, tensors: Sequence[OutputTensor]) -> None:
        self.name = name
        stored = [x for x in tensors if not x.shares_data_with]
        storages = {x.name: i for i, x in enumerate(stored)}
        pickle = pickle_tensors([(x, storages[x.shares_data_with or x.name]) for x in tensors])
        contents: list[tuple[str, bytes | OutputTensor]] = [
            ("data.pkl", pickle),
            ("byteorder", b"little"),
        ]
        contents += [(f"data/{i}", x) for i, x in enumerate(stored)]
        contents += [("version", b"3\n")]
        self._members: list[_Member] = []
        for key, content in contents:
            start = self._members[-1].end if self._members else 0
            size = len(content) if isinstance(content, bytes) else content.size
            self._members.append(
                _Member(f"{name.removesuffix('.pth')}/{key}".encode(), content, start, size)
            )
        self._end = self._members[-1].end
        self.size = self._end + sum(len(_directory_entry(x, 0)) for x in self._members) + _END_BYTES

    def write(self, sink: Sink, reader: TensorReader) -> None:
        """Write the members; their checksums are patched in once their bytes are known."""
        directory = []
        for member in self._members:
            sink.write(_local_header(member, 0))
            checksum = 0
            for data in (
                (member.content,)
                if isinstance(member.content, bytes)
                else member.content.chunks(reader)
            ):
                checksum = crc32(data, checksum)
                sink.write(data)
            sink.patch(member.start + _CHECKSUM_OFFSET, struct.pack("<L", checksum))
            directory.append(_directory_entry(member, checksum))
        sink.write(
            b"".join(directory) + _end_records(len(directory), sum(map(len, directory)), self._end)
        )

    def identity(self) -> bytes:
        """Return the members' names, and their bytes or the source of each tensor."""
        contents = ((x.name, x.content) for x in self._members)
        return b"".join(
            name + (x if isinstance(x, bytes) else x.identity()) for name, x in contents
        )


def params_keys(source: ConversionSource, notes: list[str]) -> dict[str, Any]:
    """Return the keys of params.json; settings that it cannot express are noted, or refused if
    the file would be a different model.
    """
    keys = {
        key: value for key, value in source.model.config.data.items() if key != "sliding_window"
    }
    config = Config(keys, source.model.config.source)
    args = config_to_args(config)
    if args.use_scaled_rope:
        scaling = config.rope().data
        known = {key: value for key, value in LLAMA3_ROPE_SCALING.items() if key != "rope_type"}
        other = {key: scaling.get(key) for key, value in known.items() if scaling.get(key) != value}
        if set(other) - {"factor"}:
            raise ConvertError(
                f"params.json cannot express {other}",
                hint=f"Meta's reference always uses {LLAMA3_ROPE_SCALING}",
            )
        if other:
            notes.append(
                "params.json cannot express the RoPE scaling factor "
                f"{other['factor']:g}: the reference implementation uses 8"
            )
    if (window := _min_sliding_window(source.model.tree)) is not None:
        notes.append(
            f"the reference implementation has no sliding window: up to {window:,} "
            "tokens the model is the same"
        )
    return dict(params_json(args))


def _min_sliding_window(tree: Decoder) -> int | None:
    """Return the shortest sliding window of any layer."""
    windows = [
        x.attn.window.size
        for x, _ in tree.layers.distinct()
        if isinstance(x, Layer) and isinstance(x.attn, Attention)
    ]
    return min((x for x in windows if x is not None), default=None)


def pickle_tensors(tensors: Sequence[tuple[OutputTensor, int]]) -> bytes:
    """Return the pickle (protocol 2) of a dictionary from names to tensors, each with the number
    of its storage.
    """
    out = [b"\x80\x02}("]
    out += [_pickle_text(x.name) + _pickle_tensor(x, storage) for x, storage in tensors]
    return b"".join([*out, b"u."])


def _local_header(member: _Member, checksum: int) -> bytes:
    """Return a member's header, padded so that its data begin at a multiple of 64."""
    name, size = member.name, member.size
    zip64 = struct.pack("<HHQQ", 1, 16, size, size) if size >= _ZIP64 else b""
    padding = -(member.start + 30 + len(name) + len(zip64) + 4) % _ALIGNMENT
    extra = zip64 + b"FB" + struct.pack("<H", padding) + b"Z" * padding
    short = _ZIP64 if zip64 else size
    version = 45 if zip64 else 0
    head = struct.pack(
        "<4s5H3L2H",
        b"PK\3\4",
        version,
        0,
        0,
        0,
        _DATE,
        checksum,
        short,
        short,
        len(name),
        len(extra),
    )
    return head + name + extra


def _directory_entry(member: _Member, checksum: int) -> bytes:
    """Return a member's entry in the central directory."""
    name, start, size = member.name, member.start, member.size
    values = [x for x in (size, size, start) if x >= _ZIP64]
    extra = struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""
    sizes, offset = min(size, _ZIP64), min(start, _ZIP64)
    versions = (45, 45) if values else (0, 0)
    lengths = (len(name), len(extra))
    head = struct.pack(
        "<4s6H3L5H2L",
        b"PK\1\2",
        *versions,
        0,
        0,
        0,
        _DATE,
        checksum,
        sizes,
        sizes,
        *lengths,
        0,
        0,
        0,
        0,
        offset,
    )
    return head + name + extra


def _end_records(count: int, size: int, start: int) -> bytes:
    """Return the three end records; torch always writes those of zip64."""
    zip64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, start + size, 1)
    entries = min(count, 0xFFFF)
    return (
        zip64
        + locator
        + struct.pack(
            "<4s4H2LH", b"PK\5\6", 0, 0, entries, entries, min(size, _ZIP64), min(start, _ZIP64), 0
        )
    )


def _pickle_tensor(x: OutputTensor, storage: int) -> bytes:
    """Return `torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False,
    OrderedDict())`.
    """
    strides: list[int] = []
    elements = 1
    for n in reversed(x.shape):
        strides.insert(0, elements)
        elements *= n
    kind = _pickle_text("storage") + _pickle_global("torch", _STORAGES[x.dtype])
    data = (
        b"("
        + kind
        + _pickle_text(str(storage))
        + _pickle_text("cpu")
        + _pickle_int(elements)
        + b"tQ"
    )
    shape = _pickle_tuple(x.shape) + _pickle_tuple(strides)
    hooks = _pickle_global("collections", "OrderedDict") + b")R"
    return (
        _pickle_global("torch._utils", "_rebuild_tensor_v2")
        + b"("
        + data
        + _pickle_int(0)
        + shape
        + b"\x89"
        + hooks
        + b"tR"
    )


def _pickle_text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<L", len(data)) + data


def _pickle_global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _pickle_tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_pickle_int, values)) + b"t"


def _pickle_int(value: int) -> bytes:
    if value < 1 << 31:
        return b"J" + struct.pack("<l", value)
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data
