"""GGUF metadata values: numbers, booleans, strings, and arrays, which stay in the file until they are read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...core.errors import FormatError, safe
from .source import Cursor, Source

_MAX_VALUE = 16 << 20
"""Maximum bytes of a string that `values` returns."""
CHUNK = 4096


class Kind(NamedTuple):
    """A metadata type; `code` is its struct format."""

    name: str
    code: str = ""
    size: int = 0


UINT8, INT8, UINT16, INT16 = Kind("UINT8", "B", 1), Kind("INT8", "b", 1), Kind("UINT16", "H", 2), Kind("INT16", "h", 2)
UINT32, INT32, FLOAT32, BOOL = Kind("UINT32", "I", 4), Kind("INT32", "i", 4), Kind("FLOAT32", "f", 4), Kind("BOOL", "B", 1)
UINT64, INT64, FLOAT64 = Kind("UINT64", "Q", 8), Kind("INT64", "q", 8), Kind("FLOAT64", "d", 8)
STRING, ARRAY = Kind("STRING"), Kind("ARRAY")
KINDS = (UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64)


class Array(NamedTuple):
    """An array, or a single long string, that stays in the file; `values` reads it."""

    type: str
    count: int  # type: ignore[assignment]  # tuple has a method of that name
    start: int  # its first element: for strings, the first one's length
    end: int
    order: str = "<"
    head: tuple[Any, ...] = ()  # the first values; all of them in a short array of numbers


def values(source: Source, array: Array) -> Iterator[Any]:
    """Yield an array's elements; bytes of strings that are not UTF-8 become lone surrogates (PEP 383)."""
    cursor = Cursor(source, array.start)
    kind = next(kind for kind in KINDS if kind.name == array.type)
    if kind is STRING:
        length = struct.Struct(array.order + "Q")
        for _ in range(array.count):
            size: int = cursor.unpack(length)[0]
            if size > _MAX_VALUE:
                raise FormatError("too_large", f"{safe(source.name)}: expected a string of at most {_MAX_VALUE:,} bytes, found {size:,}")
            yield cursor.take(size).decode("utf-8", "surrogateescape")
    else:
        for done in range(0, array.count, CHUNK):
            yield from numbers(cursor, array.order, kind, min(CHUNK, array.count - done))


def numbers(cursor: Cursor, order: str, kind: Kind, count: int) -> tuple[Any, ...]:
    """Read the next numbers or booleans."""
    found = struct.unpack(f"{order}{count}{kind.code}", cursor.take(count * kind.size))
    if kind is not BOOL:
        return found
    if found and max(found) > 1:
        where = f"{safe(cursor.source.name)}: before byte {cursor.at:,}"
        raise FormatError("bool", f"{where}: expected a boolean, 0 or 1, found {max(found)}")
    return tuple(map(bool, found))


def skip_strings(cursor: Cursor, left: int, layout: struct.Struct) -> None:
    """Skip strings by their lengths; the inner loop ends where a length or a string reaches out of the window."""
    length_at = layout.unpack_from
    while left:
        buffer, start = cursor.peek(8)
        at = start
        try:
            for left in range(left, 0, -1):  # noqa: B007, B020
                at += 8 + length_at(buffer, at)[0]
            left = 0
        except (struct.error, OverflowError):
            pass
        cursor.skip(at - start)
