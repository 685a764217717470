"""The safetensors header: 8 bytes of length, a JSON object of a closed grammar, then the tensors without gap or overlap.

Read by that grammar and nothing else, so the first thing that does not belong ends the reading: what a header promises costs nothing.
Everything that the reference (safetensors 0.8) refuses is refused; beyond that, whatever is declared twice, fields that it does not
know, and headers that no model has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import repeat
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from operator import itemgetter, sub
from typing import NamedTuple, NoReturn

from ..errors import FormatError, safe
from .dtypes import PLAIN
from .manifest import File, Manifest, Tensor
from .source import Source

LIMIT = 16 << 20
"""Bytes of header, at the most: the largest published checkpoint, in one file, would need 12 million."""
TENSORS, ODD, STRINGS, DIMENSIONS, NAME = 1 << 18, 20_000, 1 << 16, 64, 1 << 16
"""The most tensors, tensors not written alike, strings of metadata, dimensions, and characters of a name."""

_INTEGER = "(?:0|[1-9][0-9]{0,19})"
_NUMBER = re.compile(_INTEGER + "(?![0-9.eE])")
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
        raise FormatError("header_length", f"{name}: the header is said to have {length:,} bytes, and only {source.size - 8:,} follow")
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
    columns = _alike(text, scanner.at, name)
    return (columns, metadata) if columns else scanner.header()


@cache
def _entry(flipped: bool, space: str) -> re.Pattern[str]:
    """One tensor as safetensors writes it, or with sorted fields as mlx does; the second group is loose, and `_kind` looks at it."""
    kind, offsets = r'("dtype"~:~"[^"]*"~,~"shape"~:~\[[^]]*\])', rf'"data_offsets"~:~\[~({_INTEGER})~,~({_INTEGER})~\]'
    fields = f"{offsets}~,~{kind}" if flipped else f"{kind}~,~{offsets}"
    return re.compile(rf'~"([^"\\\x00-\x1f]{{0,{NAME}}})"~:~\{{~{fields}~\}}~'.replace("~", space))


@cache
def _dtype_and_shape() -> re.Pattern[str]:
    dims = rf"(?:{_INTEGER}(?:~,~{_INTEGER}){{0,{DIMENSIONS - 1}}})?"
    return re.compile(rf'"dtype"~:~"([A-Z0-9_]+)"~,~"shape"~:~\[~({dims})~\]'.replace("~", _SPACE.pattern))


def _alike(text: str, at: int, name: str) -> Columns | None:
    """The columns of a header whose tensors are all written as its first one, at the speed of a regular expression; else None."""
    ways = [(flipped, space) for space in ("", _SPACE.pattern) for flipped in (False, True)]
    way = next((way for way in ways if _entry(*way).match(text, at)), None)
    if way is None:
        return None
    between, names, *columns = (parts[i::5] for parts in (_entry(*way).split(text),) for i in range(5))
    if len(between[0]) != at or between.count(",") != len(names) - 1 or between[-1].rstrip(" \t\n\r") != "}" or "__metadata__" in names:
        return None
    firsts, lasts, written = columns if way[0] else (columns[1], columns[2], columns[0])
    kinds: dict[str, Kind] = {}
    for kind, tensor in dict(zip(written, names, strict=True)).items():
        found = _dtype_and_shape().fullmatch(kind)
        if found is None:
            return None
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
    ends = list(map(int, lasts))
    starts = [0, *ends[:-1]] if firsts == ["0", *lasts[:-1]] else list(map(int, firsts))
    if (spans := list(map(sub, ends, starts))) != [x.bytes for x in kinds]:
        i, kind = next((i, x) for i, x in enumerate(kinds) if spans[i] != x.bytes)
        what = f"{safe(names[i])} is {kind.dtype} {safe(str(list(kind.shape)))}, which takes {kind.bytes:,} bytes"
        raise FormatError("span", f"{name}: {what}; its offsets {firsts[i]} to {lasts[i]} are {spans[i]:,}")
    if max(ends, default=0) >> 64:
        raise FormatError("overflow", f"{name}: its tensors end at byte {max(ends):,}, which 64 bits do not count")
    starts, ends = [x + base for x in starts], [x + base for x in ends]
    rows = zip(names, [x.dtype for x in kinds], [x.shape for x in kinds], repeat(0), starts, ends, repeat(None), repeat(""))
    return tuple(map(partial(tuple.__new__, Tensor), rows))


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
        return FormatError("truncated", f"{name} is {at - size:,} bytes short: {safe(before)} ends at byte {at:,}, the file at {size:,}")
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
            self.maybe(",")
            return found
        self.at = start
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
                raise FormatError("too_large", f"{self.name}: more than {ODD:,} tensors that are not all written alike")
            else:
                for column, cell in zip(columns, (key, *self.entry(key)), strict=True):
                    column.append(cell)
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
        """An object of strings."""
        found: dict[str, str] = {}
        for key in self.keys():
            if key in found:
                raise FormatError("duplicate", f"{self.name}: the key {safe(key)} occurs twice in __metadata__")
            if len(found) == STRINGS:
                raise FormatError("too_large", f"{self.name}: more than {STRINGS:,} strings in __metadata__")
            found[key] = self.string()
        return found

    def entry(self, name: str) -> tuple[Kind, str, str]:
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
        first, last = found["data_offsets"]
        return _kind(found["dtype"][0], ",".join(found["shape"]), f"{self.name}: {safe(name)}"), first, last

    def integers(self) -> list[str]:
        """An array of integers without sign, fraction or exponent."""
        self.expect("[")
        if self.maybe("]"):
            return []
        found: list[str] = []
        while True:
            self.space()
            number = _NUMBER.match(self.text, self.at)
            if number is None:
                self.fail("an integer of at most 64 bits")
            if len(found) == DIMENSIONS:
                raise FormatError("too_large", f"{self.name}: more than {DIMENSIONS} dimensions at character {self.at:,} of the header")
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
