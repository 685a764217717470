"""Torch's archives (`consolidated.00.pth`): a ZIP of stored members, one with the names and one for the bytes of each tensor.

Laid out as torch 1.6 and later write them (`torch/serialization.py`, caffe2's `inline_container.cc`): data at multiples of 64, zip64 where
a size wants it. The stream in `data.pkl` has only the opcodes that torch.save writes for a dictionary of tensors.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

from ..checkpoint.tensor_reader import TensorReader
from .target_files import Sink, tensor_identity
from .tensor_plan import OutputTensor, read_chunks

ALIGNMENT = 64
STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage"}
FULL = 0xFFFFFFFF
DATE = 0x21  # 1 January 1980: the same checkpoint, the same bytes


class TorchArchive:
    """An archive with these tensors; those that share another's bytes have none of their own."""

    def __init__(self, name: str, entries: Sequence[OutputTensor]) -> None:
        self.name, self.folder = name, name.removesuffix(".pth")
        own = [x for x in entries if not x.shares_data_with]
        numbers = {x.name: i for i, x in enumerate(own)}
        stream = pickle_tensors([(x, numbers[x.shares_data_with or x.name]) for x in entries])
        self.members: list[tuple[str, bytes | OutputTensor]] = [("data.pkl", stream), ("byteorder", b"little")]
        self.members += [(f"data/{i}", x) for i, x in enumerate(own)]
        self.members += [("version", b"3\n")]
        self.size = self._end(layout := self._layout()) + sum(len(_entry(name, at, size, 0)) for name, at, size in layout) + _END

    def write(self, sink: Sink, files: TensorReader) -> None:
        """Member by member; checksums go into the headers once the bytes have gone by."""
        directory = []
        for (_, content), (name, at, size) in zip(self.members, layout := self._layout(), strict=True):
            head = _local(name, at, size, 0)
            sink.write(head)
            checksum = 0
            for data in (content,) if isinstance(content, bytes) else read_chunks(content, files):
                checksum = crc32(data, checksum)
                sink.write(data)
            sink.patch(at + 14, struct.pack("<L", checksum))
            directory.append(_entry(name, at, size, checksum))
        sink.write(b"".join(directory) + _ends(len(directory), sum(map(len, directory)), self._end(layout)))

    def identity(self) -> bytes:
        """Names and how each tensor comes about."""
        return b"".join(name.encode() + (x if isinstance(x, bytes) else tensor_identity(x)) for name, x in self.members)

    def _layout(self) -> list[tuple[bytes, int, int]]:
        """Name, start and size of each member."""
        found, at = [], 0
        for name, content in self.members:
            size = len(content) if isinstance(content, bytes) else content.bytes
            found.append((full := f"{self.folder}/{name}".encode(), at, size))
            at += len(_local(full, at, size, 0)) + size
        return found

    @staticmethod
    def _end(layout: list[tuple[bytes, int, int]]) -> int:
        name, at, size = layout[-1]
        return at + len(_local(name, at, size, 0)) + size


_END = 56 + 20 + 22


def _local(name: bytes, at: int, size: int, checksum: int) -> bytes:
    """A member's header, as long as it takes for its data to begin at a multiple of 64."""
    wide = struct.pack("<HHQQ", 1, 16, size, size) if size >= FULL else b""
    room = -(at + 30 + len(name) + len(wide) + 4) % ALIGNMENT
    extra = wide + b"FB" + struct.pack("<H", room) + b"Z" * room
    short = FULL if wide else size
    return (
        struct.pack("<4s5H3L2H", b"PK\3\4", 45 if wide else 0, 0, 0, 0, DATE, checksum, short, short, len(name), len(extra)) + name + extra
    )


def _entry(name: bytes, at: int, size: int, checksum: int) -> bytes:
    """A member's line in the directory."""
    values = [x for x in (size, size, at) if x >= FULL]
    extra = struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""
    short, place = min(size, FULL), min(at, FULL)
    versions = (45, 45) if values else (0, 0)
    head = struct.pack("<4s6H3L5H2L", b"PK\1\2", *versions, 0, 0, 0, DATE, checksum, short, short, len(name), len(extra), 0, 0, 0, 0, place)
    return head + name + extra


def _ends(count: int, size: int, at: int) -> bytes:
    """The three end records, the zip64 ones always, as torch has them."""
    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, at)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at + size, 1)
    few = min(count, 0xFFFF)
    return wide + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, few, few, min(size, FULL), min(at, FULL), 0)


def pickle_tensors(tensors: Sequence[tuple[OutputTensor, int]]) -> bytes:
    """The stream of a dictionary from names to tensors, each a view of the storage of its number (protocol 2)."""
    out = [b"\x80\x02}("]
    out += [_text(x.name) + _tensor(x, number) for x, number in tensors]
    return b"".join([*out, b"u."])


def _tensor(x: OutputTensor, number: int) -> bytes:
    """`torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`."""
    strides: list[int] = []
    elements = 1
    for n in reversed(x.shape):
        strides.insert(0, elements)
        elements *= n
    storage = b"(" + _text("storage") + _global("torch", STORAGES[x.dtype]) + _text(str(number)) + _text("cpu") + _integer(elements) + b"tQ"
    shape = _tuple(x.shape) + _tuple(strides)
    hooks = _global("collections", "OrderedDict") + b")R"
    return _global("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + _integer(0) + shape + b"\x89" + hooks + b"tR"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<L", len(data)) + data


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_integer, values)) + b"t"


def _integer(value: int) -> bytes:
    if value < 1 << 31:
        return b"J" + struct.pack("<l", value)
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data
