"""The safetensors header: 8 bytes of length, a JSON object of a closed grammar, then the tensors without gap or overlap.

Read by that grammar and nothing else, so the first thing that does not belong ends the reading: what a header promises costs nothing.
Everything that the reference (safetensors 0.8) refuses is refused; beyond that, whatever is declared twice, fields that it does not
know, and headers that no model has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import accumulate, repeat
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from operator import itemgetter
from typing import NamedTuple, NoReturn

from ..errors import FormatError, safe
from .dtypes import PLAIN
from .manifest import File, Manifest, Tensor
from .source import Source

LIMIT = 16 << 20
"""Bytes of header, at the most: the largest published checkpoint, in one file, would need 12 million."""
TENSORS, ODD, STRINGS, DIMENSIONS, NAME = 1 << 18, 10_000, 1 << 14, 64, 1 << 16
"""The most tensors, tensors not written alike or kinds of them, strings of metadata, dimensions, and characters of a name."""
SHORT = "a download may be incomplete: compare its size with the publisher's"

_INTEGER = "(?:0|[1-9][0-9]{0,19})"
_NUMBER = re.compile(_INTEGER)
_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Kind(NamedTuple):
    """What many tensors have in common."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Columns(NamedTuple):
    """The tensors of a header, a list of each thing; offsets as they are written."""

    names: list[str]
    kinds: list[Kind]
    firsts: list[str]
    lasts: list[str]


def read(source: Source) -> Manifest:
    """What a safetensors file contains; an error that is only about where the tensors lie brings the manifest along."""
    name = safe(source.name)
    length = int.from_bytes(source.read(0, 8), "little")
    if length > source.size - 8:
        said = f"{name}: the header is said to have {length:,} bytes, and only {source.size - 8:,} follow"
        raise FormatError("header_length", said, hint=SHORT)
    if length > LIMIT:
        raise FormatError("header_length", f"{name}: the header is said to have {length:,} bytes; at most {LIMIT:,} are read")
    columns, metadata = _header(source.read(8, length), name)
    tensors = _tensors(columns, 8 + length, name)
    manifest = Manifest(format="safetensors", files=(File(source.name, source.size, 8 + length),), tensors=tensors, metadata=metadata)
    if error := _layout(tensors, 8 + length, source.size, name):
        error.manifest = manifest
        raise error
    return manifest


def _header(data: bytes, name: str) -> tuple[Columns, dict[str, str]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError("header_text", f"{name}: the header is not UTF-8 at byte {8 + error.start}") from None
    if not text.startswith("{"):
        raise FormatError("header_text", f"{name}: the header should begin with {{, not with {safe(repr(text[:1]))}")
    scanner = _Scanner(text, name)
    metadata = scanner.leading()
    if columns := _alike(text, scanner.at, name):
        return columns, metadata
    metadata.clear()  # it may be long, and is read again
    return scanner.header()


@cache
def _pattern(text: str, space: str = _SPACE.pattern) -> re.Pattern[str]:
    """A regular expression with ~ where there may be space, and I for an integer."""
    return re.compile(text.replace("~", space).replace("I", _INTEGER))


_FIELDS = r'("dtype"~:~"[^"]*+"~,~"shape"~:~\[[0-9, \t\n\r]*+\])', r'"data_offsets"~:~\[~([0-9]++)~,~([0-9]++)~\]'
_NAME = rf'"([^"\\\x00-\x1f]{{0,{NAME}}}+)"'
_ENTRIES = [rf'{_NAME}~:~\{{~{"~,~".join(fields)}~\}}~(?:,~(?=")|(?=\}}))' for fields in (_FIELDS, _FIELDS[::-1])]
"""One tensor as safetensors writes it, and with its fields in the order of the alphabet, as mlx does; what it matches is checked again."""
_ARRAY = rf"\[~((?:I(?:~,~I){{0,{DIMENSIONS - 1}}})?)~\]"
_KIND = rf'"dtype"~:~"([A-Z0-9_]+)"~,~"shape"~:~{_ARRAY}'


def _alike(text: str, at: int, name: str) -> Columns | None:
    """The columns of a header whose tensors are all written as its first one, at the speed of a regular expression; else None."""
    entries = (_pattern(entry, space) for space in ("", _SPACE.pattern) for entry in _ENTRIES)
    entry = next((x for x in entries if x.match(text, at)), None)
    if entry is None:
        return None
    parts = entry.split(text)
    between, names, *columns = (parts[i::5] for i in range(5))
    if len(between[0]) != at or any(between[1:-1]) or between[-1].rstrip(" \t\n\r") != "}" or "__metadata__" in names:
        return None
    written, firsts, lasts = columns if columns[0][0][0] == '"' else (columns[2], *columns[:2])
    kinds: dict[str, Kind] = {}
    for kind, tensor in dict(zip(written, names, strict=True)).items():
        found = _pattern(_KIND).fullmatch(kind)
        if found is None:
            return None
        if len(kinds) == ODD:
            raise FormatError("too_large", f"{name}: tensors of more than {ODD:,} types and shapes")
        kinds[kind] = _kind(found[1], found[2], f"{name}: {safe(tensor)}")
    return Columns(names, [kinds[kind] for kind in written], firsts, lasts)


def _kind(dtype: str, dims: str, where: str) -> Kind:
    """The shape and the bytes that such a tensor takes."""
    kind = PLAIN.get(dtype)
    if kind is None:
        raise FormatError("dtype", f"{where} has the unknown dtype {safe(dtype, 40)}", hint=f"known: {', '.join(PLAIN)}")
    shape = tuple(map(int, dims.split(","))) if dims else ()
    elements = 1
    for n in (*shape, kind.bytes * 8 // kind.block):
        if (elements := elements * n) >> 64 or n >> 64:
            raise FormatError("overflow", f"{where} is {dtype} [{safe(dims)}], more bits than 64 bits count")
    if elements % 8:
        raise FormatError("span", f"{where} is {dtype} [{safe(dims)}], which is no whole number of bytes")
    return Kind(dtype, shape, elements // 8)


def _tensors(columns: Columns, base: int, name: str) -> tuple[Tensor, ...]:
    names, kinds, firsts, lasts = columns
    if len(names) > TENSORS:
        raise FormatError("too_large", f"{name} declares {len(names):,} tensors; at most {TENSORS:,} are read")
    if len(set(names)) != len(names):
        seen = set[str]()
        double = next(x for x in names if x in seen or seen.add(x))  # type: ignore[func-returns-value]
        raise FormatError("duplicate", f"{name}: the tensor {safe(double)} is declared twice")
    sizes = [x.bytes for x in kinds]
    edges = list(accumulate(sizes, initial=base))
    starts, ends = edges[:-1], edges[1:]
    if firsts != ["0", *lasts][:-1] or lasts != list(map(str, accumulate(sizes))):
        starts, ends = _offsets(columns, base, name)
    if max(ends, default=base) - base >> 64:
        raise FormatError("overflow", f"{name}: its tensors end at byte {max(ends):,}, which 64 bits do not count")
    rows = zip(names, [x.dtype for x in kinds], [x.shape for x in kinds], repeat(0), starts, ends, repeat(None), repeat(""))
    return tuple(map(partial(tuple.__new__, Tensor), rows))


def _offsets(columns: Columns, base: int, name: str) -> tuple[list[int], list[int]]:
    """Where tensors that do not follow one another in order begin and end, if each has its size."""
    starts: list[int] = []
    ends: list[int] = []
    integer = _pattern("I")
    for tensor, kind, first, last in zip(*columns, strict=True):
        if not integer.fullmatch(first) or not integer.fullmatch(last):
            raise FormatError("header_text", f"{name}: the offsets of {safe(tensor)} should be integers of at most 64 bits")
        start, end = int(first), int(last)
        if end - start != kind.bytes:
            what = f"{safe(tensor)} is {kind.dtype} {safe(str(list(kind.shape)))}, which takes {kind.bytes:,} bytes"
            raise FormatError("span", f"{name}: {what}; its offsets {start:,} to {end:,} are {end - start:,}")
        starts.append(start + base)
        ends.append(end + base)
    return starts, ends


def _layout(tensors: tuple[Tensor, ...], base: int, size: int, name: str) -> FormatError | None:
    """What is wrong with where the tensors lie: they should fill the file, in any order."""
    in_order = [x.start for x in tensors] == [base, *(x.end for x in tensors)][:-1]
    at, before = (tensors[-1].end, tensors[-1].name) if tensors and in_order else (base, "the header")
    for x in sorted(() if in_order else tensors, key=itemgetter(4, 5)):
        if x.start != at:
            kind, gap = ("hole", x.start - at) if x.start > at else ("overlap", at - x.start)
            return FormatError(kind, f"{name}: {gap:,} bytes of {kind} between {safe(before)} and {safe(x.name)} at byte {at:,}")
        at, before = x.end, x.name
    if at > size:
        short = f"{name} is {at - size:,} bytes short: {safe(before)} ends at byte {at:,}, the file at {size:,}"
        return FormatError("truncated", short, hint=SHORT)
    if at < size:
        return FormatError("trailing", f"{name}: {size - at:,} bytes after {safe(before)} belong to no tensor")
    return None


class _Scanner:
    """The grammar, token by token: for headers written in an unusual way, and to say what is wrong where."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at = text, name, 0

    def leading(self) -> dict[str, str]:
        """The metadata, if it comes first; then stand where the tensors begin."""
        self.expect("{")
        start = self.at
        if self.maybe('"__metadata__"') and self.maybe(":"):
            found = self.strings()
            if self.maybe(","):
                self.space()
                return found
        self.at = start
        self.space()
        return {}

    def header(self) -> tuple[Columns, dict[str, str]]:
        """The whole header."""
        self.at = 0
        columns = Columns([], [], [], [])
        metadata: dict[str, str] | None = None
        for key in self.keys():
            if key == "__metadata__":
                if metadata is not None:
                    raise FormatError("duplicate", f"{self.name}: __metadata__ is declared twice")
                metadata = self.strings()
            elif len(columns.names) == ODD:
                raise FormatError("too_large", f"{self.name}: more than {ODD:,} tensors, and they are not all written alike")
            else:
                kind, (first, last) = self.entry(key)
                columns.names.append(key)
                columns.kinds.append(kind)
                columns.firsts.append(first)
                columns.lasts.append(last)
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
            if len(key) > NAME:
                raise FormatError("too_large", f"{self.name}: a name of {len(key):,} characters; at most {NAME:,} are read")
            self.expect(":")
            yield key
            if not self.maybe(","):
                break
        self.expect("}")

    def strings(self) -> dict[str, str]:
        """An object of strings, or null for none."""
        found: dict[str, str] = {}
        if self.maybe("null"):
            return found
        for key in self.keys():
            if key in found:
                raise FormatError("duplicate", f"{self.name}: the key {safe(key)} occurs twice in __metadata__")
            if len(found) == STRINGS:
                raise FormatError("too_large", f"{self.name}: more than {STRINGS:,} strings in __metadata__")
            found[key] = self.string()
        return found

    def entry(self, name: str) -> tuple[Kind, list[str]]:
        """The three fields of a tensor, in any order."""
        found: dict[str, list[str]] = {}
        for key in self.keys():
            if key in found:
                raise FormatError("duplicate", f"{self.name}: {safe(key, 40)} occurs twice in {safe(name)}")
            if key not in ("dtype", "shape", "data_offsets"):
                self.fail("dtype, shape or data_offsets")
            found[key] = [self.string()] if key == "dtype" else self.integers()
        if len(found) != 3 or len(found["data_offsets"]) != 2:
            raise FormatError("header_text", f"{self.name}: {safe(name)} should have a dtype, a shape and two data_offsets")
        return _kind(found["dtype"][0], ",".join(found["shape"]), f"{self.name}: {safe(name)}"), found["data_offsets"]

    def integers(self) -> list[str]:
        """A short array of integers without sign, fraction or exponent."""
        self.space()
        found = _pattern(_ARRAY).match(self.text, self.at)
        if found is None:
            self.fail(f"at most {DIMENSIONS} integers of at most 64 bits")
        self.at = found.end()
        return _NUMBER.findall(found[0])

    def string(self) -> str:
        """A string with its escapes undone; lone surrogates are no text."""
        self.expect('"')
        try:
            text, end = scanstring(self.text, self.at, True)
        except JSONDecodeError:
            self.fail("a whole string")
        if not text.isascii() and _SURROGATE.search(text):
            self.fail("a string without lone surrogates")
        self.at = end
        return str(text)

    def space(self) -> None:
        """Step over white space."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def maybe(self, mark: str) -> bool:
        """Step over this mark if it is next."""
        self.space()
        if found := self.text.startswith(mark, self.at):
            self.at += len(mark)
        return found

    def expect(self, mark: str) -> None:
        """Step over this mark."""
        if not self.maybe(mark):
            self.fail(mark)

    def fail(self, expected: str) -> NoReturn:
        """Say what should stand here."""
        found = safe(repr(self.text[self.at : self.at + 16])) if self.at < len(self.text) else "its end"
        raise FormatError("header_text", f"{self.name}: expected {expected} at character {self.at:,} of the header, found {found}")
