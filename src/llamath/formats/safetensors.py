"""The safetensors header: 8 bytes of length, a JSON object of a closed grammar, then the tensors without gap or overlap.

Read by that grammar and nothing else, so the first thing that does not belong ends the reading: what a header promises costs nothing.
The reference (safetensors 0.8) refuses headers of over 100 MB; here the limit is lower, and everything it refuses is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from math import prod
from operator import sub
from typing import NoReturn

from ..errors import FormatError, safe
from .dtypes import PLAIN
from .manifest import File, Manifest, Tensor
from .source import Source

LIMIT = 16 << 20
"""Bytes of header, at the most: the largest published checkpoint, in one file, would need 12 million."""

_INTEGER = "(?:0|[1-9][0-9]{0,19})"
_TEXT = r'"[^"\\\x00-\x1f]*"'
_ENTRY = re.compile(
    r'"([^"\\\x00-\x1f]*)":\{"dtype":"([A-Z0-9_]+)","shape":\[((?:%s(?:,%s)*)?)\],"data_offsets":\[(%s),(%s)\]\}' % ((_INTEGER,) * 4)
)
_METADATA = re.compile(r'\{"__metadata__":\{((?:%s:%s(?:,%s:%s)*)?)\}(?:,(?=")|(?=\}))' % ((_TEXT,) * 4))
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(_INTEGER)

Columns = tuple[list[str], list[str], list[str], list[str], list[str]]
"""Names, dtypes, dimensions with commas between, first bytes and the bytes after the last: as written, a list of each."""


def read(source: Source) -> Manifest:
    """What a safetensors file contains."""
    name = safe(source.name)
    length = int.from_bytes(source.read(0, 8), "little")
    if length > source.size - 8:
        raise FormatError("header_length", f"{name}: the header is said to have {length:,} bytes, and only {source.size - 8:,} follow")
    if length > LIMIT:
        raise FormatError("header_length", f"{name}: the header is said to have {length:,} bytes; at most {LIMIT:,} are read")
    data = source.read(8, length)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError("header_text", f"{name}: the header is not UTF-8 at byte {8 + error.start}") from None
    if not text.startswith("{"):
        raise FormatError("header_text", f"{name}: the header should begin with {{, not with {safe(repr(text[:1]))}")
    columns, metadata = _quick(text) or _Scanner(text, name).header()
    tensors = _tensors(columns, 8 + length, name)
    _contiguous(tensors, 8 + length, source.size, name)
    return Manifest(format="safetensors", files=(File(source.name, source.size, 8 + length),), tensors=tensors, metadata=metadata)


def _quick(text: str) -> tuple[Columns, dict[str, str]] | None:
    """The columns of a header as every known writer writes it, at the speed of a regular expression; None for any other."""
    metadata: list[tuple[str, str]] = []
    if start := _METADATA.match(text):
        metadata = re.findall(r'"([^"]*)":"([^"]*)"', start[1])
        text = "{" + text[start.end() :]
    parts = _ENTRY.split(text.rstrip(" "))
    between = ["{", *[","] * (len(parts) // 6 - 1), "}"] if len(parts) > 1 else ["{}"]
    if parts[::6] != between or '"__metadata__"' in text or len(dict(metadata)) != len(metadata):
        return None
    return (parts[1::6], parts[2::6], parts[3::6], parts[4::6], parts[5::6]), dict(metadata)


def _tensors(columns: Columns, base: int, name: str) -> tuple[Tensor, ...]:
    names, dtypes, dims, firsts, lasts = columns
    written = list(zip(dtypes, dims, strict=True))
    kinds = {kind: _size(*kind, names[written.index(kind)], name) for kind in set(written)}
    found = [kinds[kind] for kind in written]
    starts, ends = [int(x) + base for x in firsts], [int(x) + base for x in lasts]
    if (spans := list(map(sub, ends, starts))) != [x[1] for x in found]:
        i = next(i for i, x in enumerate(found) if spans[i] != x[1])
        what = f"{safe(names[i])} is {dtypes[i]} [{dims[i]}], which takes {found[i][1]:,} bytes"
        raise FormatError("span", f"{name}: {what}; its offsets {firsts[i]} to {lasts[i]} are {spans[i]:,}")
    if len(set(names)) != len(names):
        raise FormatError("duplicate", f"{name}: the tensor {safe(next(x for x in names if names.count(x) > 1))} is declared twice")
    rows = zip(names, dtypes, [x[0] for x in found], repeat(0), starts, ends, repeat(None), repeat(""))
    return tuple(map(partial(tuple.__new__, Tensor), rows))


def _size(dtype: str, dims: str, tensor: str, name: str) -> tuple[tuple[int, ...], int]:
    """The shape and the bytes that such a tensor takes."""
    kind = PLAIN.get(dtype)
    if kind is None:
        raise FormatError("dtype", f"{name}: {safe(tensor)} has the unknown dtype {safe(dtype, 40)}", hint=f"known: {', '.join(PLAIN)}")
    shape = tuple(map(int, dims.split(","))) if dims else ()
    elements = 1
    for n in shape:
        if (elements := elements * n) * 8 >= 2**64 or n >= 2**64:
            raise FormatError("overflow", f"{name}: {safe(tensor)} is [{dims}], more elements than 64 bits count")
    if elements % kind.block:
        raise FormatError("span", f"{name}: {safe(tensor)} has {elements:,} elements of {dtype}, not a whole number of bytes")
    return shape, prod(shape) // kind.block * kind.bytes


def _contiguous(tensors: tuple[Tensor, ...], base: int, size: int, name: str) -> None:
    at, before = base, "the header"
    for x in sorted(tensors, key=lambda x: (x.start, x.end)):
        if x.start != at:
            kind, gap = ("hole", x.start - at) if x.start > at else ("overlap", at - x.start)
            raise FormatError(kind, f"{name}: {gap:,} bytes of {kind} between {safe(before)} and {safe(x.name)} at byte {at:,}")
        at, before = x.end, x.name
    if at > size:
        raise FormatError("truncated", f"{name} is {at - size:,} bytes short: {safe(before)} ends at byte {at:,}, the file at {size:,}")
    if at < size:
        raise FormatError("trailing", f"{name}: {size - at:,} bytes after the last tensor belong to none")


class _Scanner:
    """The same grammar for headers written otherwise: spaces, escapes, another order of the three fields."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at = text, name, 0

    def header(self) -> tuple[Columns, dict[str, str]]:
        """The whole header."""
        columns: Columns = ([], [], [], [], [])
        metadata: dict[str, str] | None = None
        for key in self.keys():
            if key != "__metadata__":
                for column, cell in zip(columns, (key, *self.entry(key)), strict=True):
                    column.append(cell)
            elif metadata is not None:
                raise FormatError("duplicate", f"{self.name}: __metadata__ is declared twice")
            else:
                metadata = self.strings()
        if self.text[self.at :].strip(" \t\n\r"):
            self.fail("the end of the header, or spaces")
        return columns, metadata or {}

    def keys(self) -> Iterator[str]:
        """The keys of the object that begins here; whoever asks reads the value after each."""
        self.expect("{")
        if self.maybe("}"):
            return
        while True:
            key = self.string()
            self.expect(":")
            yield key
            if not self.maybe(","):
                break
        self.expect("}")

    def strings(self) -> dict[str, str]:
        """An object of strings."""
        found: dict[str, str] = {}
        for key in self.keys():
            if key in found:
                raise FormatError("duplicate", f"{self.name}: the key {safe(key)} occurs twice in __metadata__")
            found[key] = self.string()
        return found

    def entry(self, name: str) -> tuple[str, str, str, str]:
        """The three fields of a tensor, in any order."""
        found: dict[str, list[str]] = {}
        for key in self.keys():
            if key in found:
                raise FormatError("duplicate", f"{self.name}: {safe(key, 40)} occurs twice in {safe(name)}")
            if key not in ("dtype", "shape", "data_offsets"):
                self.fail("dtype, shape or data_offsets")
            found[key] = [self.string()] if key == "dtype" else self.integers()
        if len(found) != 3 or len(found["data_offsets"]) != 2:
            raise FormatError("header_text", f"{self.name}: {safe(name)} should have dtype, shape and two data_offsets")
        return found["dtype"][0], ",".join(found["shape"]), found["data_offsets"][0], found["data_offsets"][1]

    def integers(self) -> list[str]:
        """An array of integers without sign, fraction or exponent."""
        self.expect("[")
        if self.maybe("]"):
            return []
        found = []
        while True:
            self.space()
            number = _NUMBER.match(self.text, self.at)
            if number is None or self.text[number.end() : number.end() + 1] in tuple("0123456789.eE"):
                self.fail("an integer of at most 64 bits")
            found.append(number[0])
            self.at = number.end()
            if not self.maybe(","):
                break
        self.expect("]")
        return found

    def string(self) -> str:
        """A string with its escapes undone; lone surrogates are no text."""
        self.expect('"')
        try:
            text, self.at = scanstring(self.text, self.at, True)
            text.encode()
        except (JSONDecodeError, UnicodeEncodeError):
            self.fail("a whole string")
        return str(text)

    def space(self) -> None:
        """Step over white space."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def maybe(self, mark: str) -> bool:
        """Step over this mark if it is next."""
        self.space()
        if found := self.text.startswith(mark, self.at):
            self.at += 1
        return found

    def expect(self, mark: str) -> None:
        """Step over this mark."""
        if not self.maybe(mark):
            self.fail(mark)

    def fail(self, expected: str) -> NoReturn:
        """Say what should stand here."""
        found = safe(repr(self.text[self.at : self.at + 16])) if self.at < len(self.text) else "its end"
        raise FormatError("header_text", f"{self.name}: expected {expected} at character {self.at:,} of the header, found {found}")
