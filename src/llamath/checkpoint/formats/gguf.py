"""Read GGUF headers of versions 2 and 3 in either byte order: tensors and metadata; long arrays
stay in the file.

The format is specified in ggml/docs/gguf.md. Like ggml/src/gguf.cpp and llama.cpp's
llama-model-loader.cpp, this refuses tensors that are out of order or have gaps; it also refuses
ambiguous names (with NUL) and headers larger than any model needs.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from ...utils.errors import FormatError, safe
from ...utils.file_diagnosis import diagnose, truncated_hint
from .dtypes import GGML, DType
from .manifest import CheckpointFile, Manifest, Tensor
from .source import Cursor, Source

_MAX_VALUE = 16 << 20
"""Maximum bytes of a string that `values` returns."""
_VALUES_PER_READ = 4096


class Kind(NamedTuple):
    """A metadata type; `code` is its struct format."""

    name: str
    code: str = ""
    size: int = 0


UINT8, INT8, UINT16, INT16 = (
    Kind("UINT8", "B", 1),
    Kind("INT8", "b", 1),
    Kind("UINT16", "H", 2),
    Kind("INT16", "h", 2),
)
UINT32, INT32, FLOAT32, BOOL = (
    Kind("UINT32", "I", 4),
    Kind("INT32", "i", 4),
    Kind("FLOAT32", "f", 4),
    Kind("BOOL", "B", 1),
)
UINT64, INT64, FLOAT64 = Kind("UINT64", "Q", 8), Kind("INT64", "q", 8), Kind("FLOAT64", "d", 8)
STRING, ARRAY = Kind("STRING"), Kind("ARRAY")
KINDS = (
    UINT8,
    INT8,
    UINT16,
    INT16,
    UINT32,
    INT32,
    FLOAT32,
    BOOL,
    STRING,
    ARRAY,
    UINT64,
    INT64,
    FLOAT64,
)


class Array(NamedTuple):
    """An array, or a single long string, that stays in the file; `values` reads it."""

    type: str
    count: int  # type: ignore[assignment]  # tuple has a method of that name
    start: int  # its first element: for strings, the first one's length
    end: int
    order: str = "<"
    head: tuple[Any, ...] = ()  # the first values; all of them in a short array of _unpack_numbers


def values(source: Source, array: Array) -> Iterator[Any]:
    """Yield an array's elements; bytes of strings that are not UTF-8 become lone surrogates (PEP
    383).
    """
    cursor = Cursor(source, array.start)
    kind = next(kind for kind in KINDS if kind.name == array.type)
    if kind is STRING:
        length = struct.Struct(array.order + "Q")
        for _ in range(array.count):
            size: int = cursor.unpack(length)[0]
            if size > _MAX_VALUE:
                raise FormatError(
                    "too_large",
                    f"{safe(source.name)}: expected a string of at "
                    f"most {_MAX_VALUE:,} bytes, found {size:,}",
                )
            yield cursor.take(size).decode("utf-8", "surrogateescape")
    else:
        for start in range(0, array.count, _VALUES_PER_READ):
            yield from _unpack_numbers(
                cursor, array.order, kind, min(_VALUES_PER_READ, array.count - start)
            )


def _unpack_numbers(cursor: Cursor, order: str, kind: Kind, count: int) -> tuple[Any, ...]:
    """Read the next _unpack_numbers or booleans."""
    numbers = struct.unpack(f"{order}{count}{kind.code}", cursor.take(count * kind.size))
    if kind is not BOOL:
        return numbers
    if numbers and max(numbers) > 1:
        where = f"{safe(cursor.source.name)}: before byte {cursor.at:,}"
        raise FormatError("bool", f"{where}: expected a boolean, 0 or 1, found {max(numbers)}")
    return tuple(map(bool, numbers))


def _skip_strings(cursor: Cursor, remaining: int, layout: struct.Struct) -> None:
    """Skip strings by their lengths; the inner loop ends at a length or a string that exceeds
    the window.
    """
    length_at = layout.unpack_from
    while remaining:
        buffer, start = cursor.peek(8)
        at = start
        try:
            for remaining in range(remaining, 0, -1):  # noqa: B007, B020
                at += 8 + length_at(buffer, at)[0]
            remaining = 0
        except (struct.error, OverflowError):
            pass
        cursor.skip(at - start)


_ALIGNMENT = 32
MAX_DIMS, MAX_NAME, MAX_KEY, MAX_TEXT, MAX_ARRAY = 4, 63, 65_535, 1 << 16, 1 << 30
MAX_KEYS, MAX_TENSORS, MAX_STRINGS, MAX_HEADER = 1 << 16, 1 << 18, 1 << 22, 1 << 30
"""Limits of a header; the largest published ones have about a hundred keys, thousands of tensors
and 800,000 strings in 30 MB."""
MAX_KEPT_BYTES, MAX_KEPT_VALUES, MAX_KEPT_STRING, BYTES_PER_VALUE = 16 << 20, 512, 1024, 80
"""Maximum bytes of metadata in memory, first values kept of an array, length of a kept string,
and bytes counted per value."""
SMALLEST_KEY, SMALLEST_TENSOR = 8 + 1 + 4 + 1, 8 + 4 + 4 + 8
REQUIRED_TYPES = {
    "general.alignment": UINT32,
    "split.no": UINT16,
    "split.count": UINT16,
    "split.tensors.count": INT32,
}
"""Keys needed to read the file, with the type that llama.cpp requires."""


class _Preamble(NamedTuple):
    """The first 24 bytes of a file; `order` is struct's `<` or `>` and applies to tensors, too."""

    version: int
    order: str
    tensors: int
    keys: int


def read(source: Source) -> Manifest:
    """Read the header of one file; the error of a truncated file carries the manifest."""
    reader = _HeaderReader(source, preamble(source))
    metadata = reader.metadata()
    tensors = reader.tensors(metadata.get("general.alignment", _ALIGNMENT))
    end = max(source.size, tensors[-1].end if tensors else 0)
    file = CheckpointFile(source.name, source.size, end - sum(tensor.bytes for tensor in tensors))
    manifest = Manifest(format="gguf", files=(file,), tensors=tensors, metadata=metadata)
    if end > source.size:
        last = (
            f"expected {safe(tensors[-1].name)} to end at byte {end:,}, found the file's end "
            f"at byte {source.size:,}"
        )
        error = FormatError(
            "truncated",
            f"{safe(source.name)} is {end - source.size:,} bytes short: {last}",
            hint=truncated_hint(source.name),
        )
        error.manifest = manifest
        raise error
    return manifest


def preamble(source: Source) -> _Preamble:
    """Read the magic, the version and the counts."""
    name, data = safe(source.name), source.read(0, min(source.size, 24))
    if data[:4] != b"GGUF":
        known = diagnose(data, source.name, source.size)
        raise FormatError(
            "magic",
            f"{name}: expected a file that begins with b'GGUF', found {data[:4]!r}",
            hint=known.hint if known else "",
        )
    if len(data) < 24:
        raise source.truncated_error(0, 24)
    order = ">" if data[4:6] == b"\0\0" else "<"
    version, tensors, keys = struct.unpack(order + "IQQ", data[4:])
    if version not in (2, 3):
        hint = (
            "version 1 was retired in 2023: convert the model again with a current llama.cpp"
            if version == 1
            else ""
        )
        raise FormatError(
            "version", f"{name}: expected version 2 or 3 at byte 4, found {version:,}", hint=hint
        )
    min_size = 24 + keys * SMALLEST_KEY + tensors * SMALLEST_TENSOR
    if min_size > source.size:
        declared = f"{tensors:,} tensors and {keys:,} keys, at least {min_size:,} bytes"
        raise FormatError(
            "count",
            f"{name}: expected counts that fit {source.size:,} bytes, found {declared}, at byte 8",
        )
    if keys > MAX_KEYS or tensors > MAX_TENSORS:
        limits = f"at most {MAX_TENSORS:,} tensors and {MAX_KEYS:,} keys"
        raise FormatError(
            "too_large", f"{name}: expected {limits}, found {tensors:,} and {keys:,}, at byte 8"
        )
    return _Preamble(version, order, tensors, keys)


def siblings(path: str) -> tuple[str, ...]:
    """Return the paths of all parts of a split file (`NAME-00001-of-00003.gguf`), or just the
    path of any other file.
    """
    match = re.fullmatch(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", path, re.DOTALL)
    if match is None:
        return (path,)
    number, count = int(match[2]), int(match[3])
    if not 1 <= number <= count <= 65_535:
        raise FormatError(
            "split_name",
            f"{safe(path)}: expected a shard between 1 and {count}, "
            f"found {number}, and at most 65535 shards",
        )
    return tuple(f"{match[1]}-{index:05d}-of-{count:05d}.gguf" for index in range(1, count + 1))


def read_split(sources: Sequence[Source]) -> Manifest:
    """Read all parts of a split file, given in order."""
    return join([read(source) for source in sources])


def join(shards: Sequence[Manifest]) -> Manifest:
    """Merge the manifests of all parts; the metadata are the first part's, as in llama.cpp."""
    if len(shards) == 1 and shards[0].metadata.get("split.count", 0) < 2:
        return shards[0]
    tensors = tuple(
        tensor._replace(file=index)
        for index, shard in enumerate(shards)
        for tensor in shard.tensors
    )
    for key, fixed in {
        "split.count": len(shards),
        "split.no": None,
        "split.tensors.count": len(tensors),
    }.items():
        for index, shard in enumerate(shards):
            expected = index if fixed is None else fixed
            if (value := shard.metadata.get(key)) != expected:
                raise _part_error(
                    key.replace(".", "_"), shards, index, f"{key} {expected:,}, found {value}"
                )
    seen = set[str]()
    for index, shard in enumerate(shards):
        names = {tensor.name for tensor in shard.tensors}
        if duplicates := sorted(seen & names):
            raise _part_error(
                "duplicate_tensor", shards, index, f"new tensors, found {safe(duplicates[0])} again"
            )
        seen |= names
    return Manifest(
        format="gguf",
        files=tuple(shard.files[0] for shard in shards),
        tensors=tensors,
        metadata=shards[0].metadata,
    )


def _part_error(code: str, shards: Sequence[Manifest], index: int, broken: str) -> FormatError:
    where = f"{safe(shards[index].files[0].name)}, given as shard {index + 1} of {len(shards)}"
    return FormatError(
        code, f"{where}: expected {broken}", hint="give every shard of one model once, in order"
    )


class _HeaderReader:
    """Parses one header within the limits."""

    def __init__(self, source: Source, head: _Preamble) -> None:
        self.source, self.head = source, head
        self.cursor = Cursor(source, 24, MAX_HEADER)
        self.u32, self.u64 = struct.Struct(head.order + "I"), struct.Struct(head.order + "Q")
        self.spare, self.strings = MAX_KEPT_BYTES, MAX_STRINGS
        self.where = ""

    def error(self, code: str, expected: str, found: object, hint: str = "") -> FormatError:
        """Return the error for the value read last."""
        message = (
            f"{safe(self.source.name)}: {self.where}: expected {expected}, found {found}, "
            f"before byte {self.cursor.at:,}"
        )
        return FormatError(code, message, hint=hint)

    def number(self, layout: struct.Struct) -> int:
        """Read the next count, length, size or type."""
        value: int = self.cursor.unpack(layout)[0]
        return value

    def name(self, max_length: int, code: str) -> str:
        """Read the name of a key or a tensor; a NUL, at which the reference ends names, would
        let one name hide another.
        """
        length = self.number(self.u64)
        if length > max_length:
            raise self.error(code, f"a name of at most {max_length:,} bytes", f"{length:,}")
        data = self.cursor.take(length)
        if 0 in data:
            raise self.error("nul", "a name without NUL", data[:64])
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.error("utf8", "a name in UTF-8", data[:64]) from None

    def metadata(self) -> dict[str, Any]:
        """Read all keys and values."""
        metadata: dict[str, Any] = {}
        for index in range(self.head.keys):
            self.where = f"key {index}"
            key = self.name(MAX_KEY, "key")
            self.where = f"key {index} ({safe(key, 64)})"
            if not key or key in metadata:
                raise self.error(
                    "duplicate_key" if key else "key",
                    "a new key",
                    "it again" if key else "an empty one",
                )
            if (cost := len(key) + BYTES_PER_VALUE) > self.spare:
                raise self.error(
                    "too_large", f"keys of at most {MAX_KEPT_BYTES:,} bytes in all", "more"
                )
            self.spare -= cost
            kind = self.kind()
            if (required_kind := REQUIRED_TYPES.get(key, kind)) is not kind:
                raise self.error("key_type", required_kind.name, kind.name)
            metadata[key] = value = self.value(kind)
            if key == "general.alignment" and (value & (value - 1) or not value):
                raise self.error("alignment", "a power of two", value)
        return metadata

    def kind(self) -> Kind:
        """Read the next type of metadata."""
        number = self.number(self.u32)
        if number >= len(KINDS):
            raise self.error("value_type", f"a type from 0 to {len(KINDS) - 1}", number)
        return KINDS[number]

    def value(self, kind: Kind) -> Any:
        """Read a number, a boolean, a string, or the position of an array or a long string."""
        if kind is ARRAY:
            return self.array()
        if kind is not STRING:
            return _unpack_numbers(self.cursor, self.head.order, kind, 1)[0]
        start, length = self.cursor.at, self.number(self.u64)
        if length <= min(MAX_TEXT, self.spare):
            self.spare -= length
            return self.cursor.take(length).decode("utf-8", "backslashreplace")
        self.cursor.skip(length)
        return Array("STRING", 1, start, self.cursor.at, self.head.order)

    def array(self) -> Array:
        """Read the position of an array, and its first values."""
        kind, count = self.kind(), self.number(self.u64)
        if kind is ARRAY:
            raise self.error(
                "nested_array",
                "an array of _unpack_numbers, booleans or strings",
                "an array of arrays",
            )
        if count > MAX_ARRAY:
            raise self.error("count", f"an array of at most {MAX_ARRAY:,} elements", f"{count:,}")
        start = self.cursor.at
        self.cursor.require_bytes(count * (kind.size or 8))
        head = (
            self.read_first_strings(count)
            if kind is STRING
            else self.read_first_numbers(kind, count)
        )
        return Array(kind.name, count, start, self.cursor.at, self.head.order, head)

    def read_first_numbers(self, kind: Kind, count: int) -> tuple[Any, ...]:
        """Read the first _unpack_numbers and skip the others."""
        kept = min(count, MAX_KEPT_VALUES, self.spare // BYTES_PER_VALUE)
        self.spare -= kept * BYTES_PER_VALUE
        head = _unpack_numbers(self.cursor, self.head.order, kind, kept)
        self.cursor.skip((count - kept) * kind.size)
        return head

    def read_first_strings(self, count: int) -> tuple[str, ...]:
        """Read the first strings while they are short, and skip the others by their lengths."""
        self.strings -= count
        if self.strings < 0:
            raise self.error("too_large", f"at most {MAX_STRINGS:,} strings in arrays", "more")
        head: list[str] = []
        while len(head) < min(count, MAX_KEPT_VALUES):
            length: int = self.u64.unpack_from(*self.cursor.peek(8))[0]
            if length > MAX_KEPT_STRING or length + BYTES_PER_VALUE > self.spare:
                break
            self.spare -= length + BYTES_PER_VALUE
            head.append(self.cursor.take(8 + length)[8:].decode("utf-8", "backslashreplace"))
        _skip_strings(self.cursor, count - len(head), self.u64)
        return tuple(head)

    def tensors(self, alignment: int) -> tuple[Tensor, ...]:
        """Read all tensors; each must start where the one before it ends, padded to the
        alignment.
        """
        infos: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        end = 0
        for index in range(self.head.tensors):
            self.where = f"tensor {index}"
            name = self.name(MAX_NAME, "name")
            self.where = f"tensor {index} ({safe(name)})"
            if name in infos:
                raise self.error("duplicate_tensor", "a new name", "it again")
            shape = self.shape()
            dtype, offset = self.dtype(shape), self.number(self.u64)
            if offset != end:
                code = "misaligned" if offset % alignment else "overlap" if offset < end else "gap"
                raise self.error(code, f"offset {end:,}", f"{offset:,}")
            size = dtype.size(prod(shape))
            infos[name] = dtype.name, shape, offset, size
            end += size + -size % alignment
        base = self.cursor.at + -self.cursor.at % alignment
        absolute = (
            (name, kind, shape, base + start, size)
            for name, (kind, shape, start, size) in infos.items()
        )
        return tuple(
            Tensor(name, kind, shape, 0, start, start + size)
            for name, kind, shape, start, size in absolute
        )

    def shape(self) -> tuple[int, ...]:
        """Read a tensor's dimensions, outermost first; the file stores them innermost first."""
        count = self.number(self.u32)
        if count > MAX_DIMS:
            raise self.error("dims", f"at most {MAX_DIMS} dimensions", f"{count:,}")
        shape = struct.unpack(f"{self.head.order}{count}Q", self.cursor.take(8 * count))[::-1]
        if 0 in shape:
            raise self.error("dims", "no empty dimension", shape)
        if prod(shape) >> 62:
            raise self.error("overflow", "fewer than 2^62 elements", shape)
        return shape

    def dtype(self, shape: tuple[int, ...]) -> DType:
        """Read a tensor's type, whose blocks must divide its rows."""
        number = self.number(self.u32)
        if number not in GGML:
            raise self.error(
                "tensor_type",
                "a ggml type",
                number,
                "the file is newer than this reader, or uses a type that GGUF removed",
            )
        dtype, row = GGML[number], shape[-1] if shape else 1
        if row % dtype.block:
            raise self.error(
                "block",
                f"rows of a multiple of {dtype.block} elements for {dtype.name}",
                f"{row:,}",
            )
        return dtype
