"""Parse a safetensors header token by token: for unusual formatting, and to locate errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import NamedTuple, NoReturn

from ...core.errors import FormatError, safe
from .dtypes import PLAIN

MAX_TENSORS, MAX_IRREGULAR, MAX_STRINGS, MAX_DIMENSIONS, MAX_NAME, MAX_CACHED_KIND = 1 << 18, 10_000, 1 << 14, 64, 1 << 16, 200
"""Maximum tensors, irregularly written tensors or kinds, metadata strings, dimensions, name length, and length of a cached kind."""

INTEGER = "(?:0|[1-9][0-9]{0,19})"
SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = r"[\ud800-\udfff]"
ARRAY = rf"\[~((?:I(?:~,~I){{0,{MAX_DIMENSIONS - 1}}})?)~\]"


class TensorKind(NamedTuple):
    """The dtype, shape and size that many tensors share."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


class HeaderColumns(NamedTuple):
    """The tensors of a header by column; offsets are text."""

    names: list[str]
    kinds: list[TensorKind]
    firsts: list[str]
    lasts: list[str]


@cache
def pattern(text: str, space: str = SPACE.pattern) -> re.Pattern[str]:
    """Compile a regular expression in which ~ is optional white space and I an integer."""
    return re.compile(text.replace("~", space).replace("I", INTEGER))


def parse_kind(dtype: str, dims: str, where: str) -> TensorKind:
    """Parse a dtype and dimensions."""
    kind = PLAIN.get(dtype)
    if kind is None:
        raise FormatError("dtype", f"{where} has the unknown dtype {safe(dtype, 40)}", hint=f"known: {', '.join(PLAIN)}")
    shape = tuple(map(int, dims.split(","))) if dims else ()
    elements = 1
    for n in (*shape, kind.bytes * 8 // kind.block):
        if (elements := elements * n) >> 64 or n >> 64:
            raise FormatError("overflow", f"{where} is {dtype} [{safe(dims)}], whose size in bits exceeds 64 bits")
    if elements % 8:
        raise FormatError("span", f"{where} is {dtype} [{safe(dims)}], which is not a whole number of bytes")
    return TensorKind(dtype, shape, elements // 8)


class HeaderParser:
    """A recursive-descent parser at a position in a header."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at = text, name, 0

    def parse_leading_metadata(self) -> dict[str, str]:
        """Parse the metadata if it comes first, and stop where the tensors begin."""
        self.expect("{")
        start = self.at
        if self.accept('"__metadata__"') and self.accept(":"):
            found = self.strings()
            if self.accept(","):
                self.space()
                return found
        self.at = start
        self.space()
        return {}

    def header(self) -> tuple[HeaderColumns, dict[str, str]]:
        """Parse the whole header."""
        self.at = 0
        columns = HeaderColumns([], [], [], [])
        metadata: dict[str, str] | None = None
        for key in self.keys():
            if key == "__metadata__":
                if metadata is not None:
                    raise FormatError("duplicate", f"{self.name}: __metadata__ is declared twice")
                metadata = self.strings()
            elif len(columns.names) == MAX_IRREGULAR:
                raise FormatError("too_large", f"{self.name}: more than {MAX_IRREGULAR:,} tensors that are not written in one regular form")
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
                raise FormatError("too_large", f"{self.name}: expected a name of at most {MAX_NAME:,} characters, found {len(key):,}")
            self.expect(":")
            yield key
            if not self.accept(","):
                break
        self.expect("}")

    def strings(self) -> dict[str, str]:
        """Parse an object of strings, or null."""
        found: dict[str, str] = {}
        if self.accept("null"):
            return found
        for key in self.keys():
            if key in found:
                raise FormatError("duplicate", f"{self.name}: the key {safe(key)} occurs twice in __metadata__")
            if len(found) == MAX_STRINGS:
                raise FormatError("too_large", f"{self.name}: more than {MAX_STRINGS:,} strings in __metadata__")
            found[key] = self.string()
        return found

    def parse_entry(self, name: str) -> tuple[TensorKind, list[str]]:
        """Parse the three fields of a tensor, in any order."""
        found: dict[str, list[str]] = {}
        for key in self.keys():
            if key in found:
                raise FormatError("duplicate", f"{self.name}: {safe(key, 40)} occurs twice in {safe(name)}")
            if key not in ("dtype", "shape", "data_offsets"):
                self.fail("dtype, shape or data_offsets")
            found[key] = [self.string()] if key == "dtype" else self.parse_integers()
        if len(found) != 3 or len(found["data_offsets"]) != 2:
            raise FormatError("header_text", f"{self.name}: {safe(name)} should have a dtype, a shape and two data_offsets")
        return parse_kind(found["dtype"][0], ",".join(found["shape"]), f"{self.name}: {safe(name)}"), found["data_offsets"]

    def parse_integers(self) -> list[str]:
        """Parse a short array of integers without sign, fraction or exponent."""
        self.space()
        found = pattern(ARRAY).match(self.text, self.at)
        if found is None:
            self.fail(f"at most {MAX_DIMENSIONS} integers of at most 64 bits")
        self.at = found.end()
        return pattern("I").findall(found[0])

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
        self.at = SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def accept(self, mark: str) -> bool:
        """Skip this character if it is next, and return whether it was."""
        self.space()
        if found := self.text.startswith(mark, self.at):
            self.at += len(mark)
        return found

    def expect(self, mark: str) -> None:
        """Skip this character; raise if it is not next."""
        if not self.accept(mark):
            self.fail(mark)

    def fail(self, expected: str) -> NoReturn:
        """Raise an error that says what was expected here."""
        found = safe(repr(self.text[self.at : self.at + 16])) if self.at < len(self.text) else "its end"
        raise FormatError("header_text", f"{self.name}: expected {expected} at character {self.at:,} of the header, found {found}")
