"""Read safetensors headers: 8 bytes of length, a JSON object of a fixed grammar, then the tensors
without gaps or overlaps.

The header is parsed by that grammar alone and parsing stops at the first violation, so that no
declared number causes an allocation. Everything that the reference (safetensors 0.8) refuses is
refused, and also duplicate declarations, unknown fields, and headers larger than any model needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import NamedTuple, NoReturn

from ...utils.errors import FormatError, safe
from ...utils.file_diagnosis import truncated_hint
from .dtypes import PLAIN
from .manifest import CheckpointFile, Manifest, TensorColumns, TensorTable
from .source import Source

MAX_TENSORS, _MAX_IRREGULAR, MAX_STRINGS, MAX_DIMENSIONS, MAX_NAME, _MAX_CACHED_KIND = (
    1 << 18,
    10_000,
    1 << 14,
    64,
    1 << 16,
    200,
)
"""Maximum tensors, irregularly written tensors or kinds, metadata strings, dimensions, name
length, and length of a cached kind."""

_INTEGER = "(?:0|[1-9][0-9]{0,19}+)"
_SPACE = re.compile(r"[ \t\n\r]*+")
"""Every repetition of characters in this module is possessive: it never gives any back, so that
matching takes linear time on any header. Groups are not repeated possessively, which Python before
3.11.5 matches wrongly: the only one has at most MAX_DIMENSIONS repetitions.
"""
_SURROGATE = r"[\ud800-\udfff]"
_ARRAY = rf"\[~((?:I(?:~,~I){{0,{MAX_DIMENSIONS - 1}}})?)~\]"


class _TensorKind(NamedTuple):
    """The dtype, shape and size that many tensors share."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


class _HeaderColumns(NamedTuple):
    """The tensors of a header by column; offsets are text."""

    names: list[str]
    kinds: list[_TensorKind]
    firsts: list[str]
    lasts: list[str]


@cache
def _pattern(text: str, space: str = _SPACE.pattern) -> re.Pattern[str]:
    """Compile a regular expression in which ~ is optional white space and I an integer."""
    return re.compile(text.replace("~", space).replace("I", _INTEGER))


def _parse_kind(dtype: str, dims: str, where: str) -> _TensorKind:
    """Parse a dtype and dimensions."""
    kind = PLAIN.get(dtype)
    if kind is None:
        raise FormatError(
            "dtype",
            f"{where} has the unknown dtype {safe(dtype, 40)}",
            hint=f"known: {', '.join(PLAIN)}",
        )
    shape = tuple(map(int, dims.split(","))) if dims else ()
    elements = 1
    for n in (*shape, kind.bytes * 8 // kind.block):
        if (elements := elements * n) >> 64 or n >> 64:
            raise FormatError(
                "overflow", f"{where} is {dtype} [{safe(dims)}], whose size in bits exceeds 64 bits"
            )
    if elements % 8:
        raise FormatError(
            "span", f"{where} is {dtype} [{safe(dims)}], which is not a whole number of bytes"
        )
    return _TensorKind(dtype, shape, elements // 8)


class _HeaderParser:
    """A recursive-descent parser at a position in a header."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at = text, name, 0

    def parse_leading_metadata(self) -> dict[str, str]:
        """Parse the metadata if it comes first, and stop where the tensors begin."""
        self.expect("{")
        start = self.at
        if self.accept('"__metadata__"') and self.accept(":"):
            metadata = self.strings()
            if self.accept(","):
                self.space()
                return metadata
        self.at = start
        self.space()
        return {}

    def header(self) -> tuple[_HeaderColumns, dict[str, str]]:
        """Parse the whole header."""
        self.at = 0
        columns = _HeaderColumns([], [], [], [])
        metadata: dict[str, str] | None = None
        for key in self.keys():
            if key == "__metadata__":
                if metadata is not None:
                    raise FormatError("duplicate", f"{self.name}: __metadata__ is declared twice")
                metadata = self.strings()
            elif len(columns.names) == _MAX_IRREGULAR:
                raise FormatError(
                    "too_large",
                    f"{self.name}: more than {_MAX_IRREGULAR:,} tensors that are "
                    "not written in one regular form",
                )
            else:
                kind, (first, last) = self.parse_entry(key)
                columns.names.append(key)
                columns.kinds.append(kind)
                columns.firsts.append(first)
                columns.lasts.append(last)
        if self.text[self.at :].strip(" \t\n\r"):
            self.fail("the end of the header, or spaces")
        return columns, metadata or {}

    def keys(self) -> Iterator[str]:
        """Yield the keys of the object that begins here; the caller parses the value after each."""
        self.expect("{")
        if self.accept("}"):
            return
        while True:
            key = self.string()
            if len(key) > MAX_NAME:
                raise FormatError(
                    "too_large",
                    f"{self.name}: expected a name of at most "
                    f"{MAX_NAME:,} characters, found {len(key):,}",
                )
            self.expect(":")
            yield key
            if not self.accept(","):
                break
        self.expect("}")

    def strings(self) -> dict[str, str]:
        """Parse an object of strings, or null."""
        strings: dict[str, str] = {}
        if self.accept("null"):
            return strings
        for key in self.keys():
            if key in strings:
                raise FormatError(
                    "duplicate", f"{self.name}: the key {safe(key)} occurs twice in __metadata__"
                )
            if len(strings) == MAX_STRINGS:
                raise FormatError(
                    "too_large", f"{self.name}: more than {MAX_STRINGS:,} strings in __metadata__"
                )
            strings[key] = self.string()
        return strings

    def parse_entry(self, name: str) -> tuple[_TensorKind, list[str]]:
        """Parse the three fields of a tensor, in any order."""
        fields: dict[str, list[str]] = {}
        for key in self.keys():
            if key in fields:
                raise FormatError(
                    "duplicate", f"{self.name}: {safe(key, 40)} occurs twice in {safe(name)}"
                )
            if key not in ("dtype", "shape", "data_offsets"):
                self.fail("dtype, shape or data_offsets")
            fields[key] = [self.string()] if key == "dtype" else self.parse_integers()
        if len(fields) != 3 or len(fields["data_offsets"]) != 2:
            raise FormatError(
                "header_text",
                f"{self.name}: {safe(name)} should have a dtype, a shape and two data_offsets",
            )
        return _parse_kind(
            fields["dtype"][0], ",".join(fields["shape"]), f"{self.name}: {safe(name)}"
        ), fields["data_offsets"]

    def parse_integers(self) -> list[str]:
        """Parse a short array of integers without sign, fraction or exponent."""
        self.space()
        match = _pattern(_ARRAY).match(self.text, self.at)
        if match is None:
            self.fail(f"at most {MAX_DIMENSIONS} integers of at most 64 bits")
        self.at = match.end()
        return _pattern("I").findall(match[0])

    def string(self) -> str:
        """Parse a string and its escapes; lone surrogates are refused."""
        self.expect('"')
        try:
            text, end = scanstring(self.text, self.at, True)
        except JSONDecodeError:
            self.fail("a whole string")
        if not text.isascii() and re.search(_SURROGATE, text):
            self.fail("a string without lone surrogates")
        self.at = end
        return str(text)

    def space(self) -> None:
        """Skip white space."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def accept(self, mark: str) -> bool:
        """Skip this character if it is next, and return whether it was."""
        self.space()
        if accepted := self.text.startswith(mark, self.at):
            self.at += len(mark)
        return accepted

    def expect(self, mark: str) -> None:
        """Skip this character; raise if it is not next."""
        if not self.accept(mark):
            self.fail(mark)

    def fail(self, expected: str) -> NoReturn:
        """Raise an error with the text expected at this position."""
        found = (
            safe(repr(self.text[self.at : self.at + 16])) if self.at < len(self.text) else "its end"
        )
        raise FormatError(
            "header_text",
            f"{self.name}: expected {expected} at character "
            f"{self.at:,} of the header, found {found}",
        )


MAX_HEADER = 16 << 20
"""Maximum bytes of a header; the largest published checkpoint in a single file would need 12
million."""


def read(source: Source) -> Manifest:
    """Read the header of a safetensors file; an error about tensor positions alone carries the
    manifest.
    """
    name = safe(source.name)
    length = int.from_bytes(source.read(0, 8), "little")
    if length > source.size - 8:
        message = f"{name}: expected a header of {length:,} bytes, found only {source.size - 8:,}"
        raise FormatError("header_length", message, hint=truncated_hint(name))
    if length > MAX_HEADER:
        raise FormatError(
            "header_length",
            f"{name}: expected a header of at most {MAX_HEADER:,} bytes, found {length:,}",
        )
    header, metadata = _header(source.read(8, length), name)
    columns, file = (
        _tensors(header, 8 + length, name),
        CheckpointFile(source.name, source.size, 8 + length),
    )
    manifest = Manifest(
        format="safetensors", files=(file,), tensors=TensorTable(columns), metadata=metadata
    )
    if error := _check_positions(columns, 8 + length, source.size, name):
        error.manifest = manifest
        raise error
    return manifest


def _header(data: bytes, name: str) -> tuple[_HeaderColumns, dict[str, str]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            "header_text", f"{name}: the header is not UTF-8 at byte {8 + error.start}"
        ) from None
    if not text.startswith("{"):
        raise FormatError(
            "header_text",
            f"{name}: the header should begin with {{, not with {safe(repr(text[:1]))}",
        )
    parser = _HeaderParser(text, name)
    metadata = parser.parse_leading_metadata()
    if columns := _parse_regular(text, parser.at, name):
        return columns, metadata
    metadata.clear()  # it may be long and is read again
    return parser.header()


_FIELDS = (
    r'("dtype"~:~"[^"]*+"~,~"shape"~:~\[[0-9, \t\n\r]*+\])',
    r'"data_offsets"~:~\[~([0-9]++)~,~([0-9]++)~\]',
)
_PRINTABLE = bytes(set(range(32, 256)) - set(b"\\"))
_ENTRIES = [
    rf'"([^"]*+)"~:~\{{~{"~,~".join(fields)}~\}}~(?:,~(?=")|(?=\}}))'
    for fields in (_FIELDS, _FIELDS[::-1])
]
"""A tensor as safetensors writes it, and with its fields in alphabetical order, as MLX does;
matches are checked again."""
_KIND = rf'"dtype"~:~"([A-Z0-9_]++)"~,~"shape"~:~{_ARRAY}'


def _parse_regular(text: str, at: int, name: str) -> _HeaderColumns | None:
    """Parse a header whose tensors are all written like its first one with a regular expression;
    None for other headers.
    """
    entries = (_pattern(entry, space) for space in ("", _SPACE.pattern) for entry in _ENTRIES)
    entry = next((x for x in entries if x.match(text, at)), None)
    if entry is None:
        return None
    parts = entry.split(text)
    between, names, *columns = (parts[i::5] for i in range(5))
    if (
        len(between[0]) != at
        or any(between[1:-1])
        or between[-1].rstrip(" \t\n\r") != "}"
        or "__metadata__" in names
    ):
        return None
    if "".join(names).encode().translate(None, _PRINTABLE) or (
        len(text) > MAX_NAME and max(map(len, names)) > MAX_NAME
    ):
        return None
    kind_texts, firsts, lasts = columns if columns[0][0][0] == '"' else (columns[2], *columns[:2])
    try:
        kinds = list(map(_KINDS.__getitem__, kind_texts))
    except KeyError:
        if (parsed := _parse_kinds(dict(zip(kind_texts, names, strict=True)), name)) is None:
            return None
        kinds = list(map(parsed.__getitem__, kind_texts))
    return _HeaderColumns(names, kinds, firsts, lasts)


_KINDS: dict[str, _TensorKind] = {}
"""Cache of types and shapes by their text, which the shards of a checkpoint share; it is
bounded."""


def _parse_kinds(texts: dict[str, str], name: str) -> dict[str, _TensorKind] | None:
    """Parse these texts of types and shapes, each with the name of a tensor that has it; None if
    one is malformed.
    """
    if len(texts) > _MAX_IRREGULAR:
        raise FormatError(
            "too_large", f"{name}: tensors of more than {_MAX_IRREGULAR:,} types and shapes"
        )
    kinds: dict[str, _TensorKind] = {}
    for kind, tensor in texts.items():
        if (parts := _pattern(_KIND).fullmatch(kind)) is None:
            return None
        kinds[kind] = _parse_kind(parts[1], parts[2], f"{name}: {safe(tensor)}")
    if len(_KINDS) < _MAX_IRREGULAR:
        _KINDS.update((kind, x) for kind, x in kinds.items() if len(kind) <= _MAX_CACHED_KIND)
    return kinds


def _tensors(header: _HeaderColumns, base: int, name: str) -> TensorColumns:
    """Return the manifest's columns; duplicate names and sizes that contradict the offsets are
    errors.
    """
    names, kinds, firsts, lasts = header
    n = len(names)
    if n > MAX_TENSORS:
        raise FormatError(
            "too_large", f"{name} declares {n:,} tensors; at most {MAX_TENSORS:,} are read"
        )
    if len(set(names)) != n:
        seen = set[str]()
        duplicate = next(x for x in names if x in seen or seen.add(x))  # type: ignore[func-returns-value]
        raise FormatError("duplicate", f"{name}: the tensor {safe(duplicate)} is declared twice")
    dtypes, shapes, sizes = map(list, zip(*kinds, strict=True)) if n else ([], [], [])
    ends = list(accumulate(sizes))
    if ", ".join(lasts) == repr(ends)[1:-1] and firsts == ["0", *lasts][:n]:
        edges = list(accumulate(sizes, initial=base))
        starts, ends = edges[:-1], edges[1:]
    else:
        starts, ends = _offsets(header, base, name)
    if max(ends, default=base) - base >> 64:
        raise FormatError(
            "overflow", f"{name}: its tensors end at byte {max(ends):,}, which exceeds 64 bits"
        )
    return TensorColumns(names, dtypes, shapes, [0] * n, starts, ends, [None] * n, [""] * n)


def _offsets(columns: _HeaderColumns, base: int, name: str) -> tuple[list[int], list[int]]:
    """Return the starts and ends of tensors that are not stored in order; sizes that contradict
    the offsets are errors.
    """
    starts: list[int] = []
    ends: list[int] = []
    integer = _pattern("I")
    for tensor, kind, first, last in zip(*columns, strict=True):
        if not integer.fullmatch(first) or not integer.fullmatch(last):
            raise FormatError(
                "header_text",
                f"{name}: the offsets of {safe(tensor)} should be integers of at most 64 bits",
            )
        start, end = int(first), int(last)
        if end - start != kind.bytes:
            declared = (
                f"{safe(tensor)} is {kind.dtype} {safe(str(list(kind.shape)))}, which "
                f"takes {kind.bytes:,} bytes"
            )
            raise FormatError(
                "span", f"{name}: {declared}; its offsets {start:,} to {end:,} are {end - start:,}"
            )
        starts.append(start + base)
        ends.append(end + base)
    return starts, ends


def _check_positions(columns: TensorColumns, base: int, size: int, name: str) -> FormatError | None:
    """Return the error of tensors that do not fill the file without gaps and overlaps, in any
    order.
    """
    names, starts, ends = columns.name, columns.start, columns.end
    in_order = starts == [base, *ends][:-1]
    at, before = (ends[-1], names[-1]) if names and in_order else (base, "the header")
    for i in sorted(() if in_order else range(len(names)), key=lambda i: (starts[i], ends[i])):
        if starts[i] != at:
            kind, gap = ("hole", starts[i] - at) if starts[i] > at else ("overlap", at - starts[i])
            return FormatError(
                kind,
                f"{name}: {gap:,} bytes of {kind} between {safe(before)} "
                f"and {safe(names[i])} at byte {at:,}",
            )
        at, before = ends[i], names[i]
    if at > size:
        short = (
            f"{name} is {at - size:,} bytes short: {safe(before)} ends at byte {at:,}, the "
            f"file at {size:,}"
        )
        return FormatError("truncated", short, hint=truncated_hint(name))
    if at < size:
        return FormatError(
            "trailing", f"{name}: {size - at:,} bytes after {safe(before)} belong to no tensor"
        )
    return None
