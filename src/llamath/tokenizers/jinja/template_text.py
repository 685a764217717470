"""`TemplateText`: a string that knows which of its characters the template wrote.

A plain `str` is text from elsewhere: messages, tools, documents, arguments. Operations that are not
listed here return a plain `str`, so that an origin can be lost but never gained: what a user wrote
is never taken for text of the template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

_WORD = re.compile(r"\S+")
_LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""The ends of lines of `str.splitlines`."""


class TemplateText(str):
    """A string with a byte per character: 1 where the template wrote it, 0 where it was passed
    in.
    """

    __slots__ = ("origins",)
    origins: bytes

    def __new__(cls, text: str, origins: bytes | None = None) -> TemplateText:
        self = super().__new__(cls, text)
        self.origins = b"\1" * len(text) if origins is None else origins
        return self


class MarkupText(TemplateText):
    """The result of the filter `safe`: a text that is added to it has its HTML characters
    escaped, as Jinja's own does.
    """

    __slots__ = ()


_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"}


def mark_safe(text: str) -> MarkupText:
    """Return a text that needs no escaping."""
    return MarkupText(text, origins_of(text))


def add(left: str, right: str) -> str:
    """Return two texts one after the other; if one is safe, the other is escaped."""
    if isinstance(left, MarkupText) or isinstance(right, MarkupText):
        return mark_safe(
            concat([x if isinstance(x, MarkupText) else _escape(x) for x in (left, right)])
        )
    return concat([left, right])


def _escape(text: str) -> str:
    escaped = [_ESCAPES.get(x, x) for x in text]
    return with_origins(
        "".join(escaped),
        b"".join(
            bytes([origin]) * len(x) for x, origin in zip(escaped, origins_of(text), strict=True)
        ),
    )


def origins_of(text: str) -> bytes:
    """Return the origin of each character."""
    return text.origins if isinstance(text, TemplateText) else bytes(len(text))


def is_from_template(text: str) -> bool:
    """Return whether the template wrote all of a text; an empty text is from nobody."""
    return not text or (isinstance(text, TemplateText) and 0 not in text.origins)


def origin_runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the longest parts of one origin, and whether the template wrote them."""
    start = 0
    for origin, group in groupby(origins_of(text)):
        end = start + sum(1 for _ in group)
        yield str.__getitem__(text, slice(start, end)), bool(origin)
        start = end


def with_origins(text: str, origins: bytes) -> str:
    """Return a text with these origins."""
    return TemplateText(text, origins) if 1 in origins else str(text)


def concat(parts: Sequence[str]) -> str:
    """Return the parts as one text."""
    return with_origins("".join(parts), b"".join(map(origins_of, parts)))


def cut(text: str, key: slice | int) -> str:
    """Return a slice or a character."""
    key = slice(key, key + 1 or None) if isinstance(key, int) else key
    if not isinstance(text, TemplateText):
        # not as much work as the rest of the text, which is cut into many parts
        return str.__getitem__(text, key)
    return with_origins(str.__getitem__(text, key), origins_of(text)[key])


def characters(text: str) -> Iterator[str]:
    """Yield each character."""
    if not isinstance(text, TemplateText):
        return iter(text)
    origins = text.origins
    return (with_origins(x, origins[i : i + 1]) for i, x in enumerate(text))


def strip(text: str, chars: str | None, left: bool, right: bool) -> str:
    """Return the text without these characters, or without spaces, at its ends."""
    start, end = 0, len(text)
    if chars is None:
        start = end - len(text.lstrip()) if left else 0
        end = max(start, len(text.rstrip())) if right else end
    else:  # Python compares every character with all of these
        among = frozenset(chars)
        while left and start < end and text[start] in among:
            start += 1
        while right and end > start and text[end - 1] in among:
            end -= 1
    return cut(text, slice(start, end))


def split(text: str, parts: Sequence[str], separator: str) -> list[str]:
    """Give the parts that `str.split` or `str.rsplit` found in a text their origins."""
    found, at = [], 0
    for part in parts:
        found.append(cut(text, slice(at, at + len(part))))
        at += len(part) + len(separator)
    return found


def words(text: str) -> Iterator[slice]:
    """Yield the places of the words in a text: what is between spaces."""
    return (slice(*found.span()) for found in _WORD.finditer(text))


def lines(text: str, keep_ends: bool) -> Iterator[str]:
    """Yield the lines of a text."""
    start = 0
    for end in _LINE_END.finditer(text):
        yield cut(text, slice(start, end.end() if keep_ends else end.start()))
        start = end.end()
    if start < len(text):
        yield cut(text, slice(start, None))


def partition(text: str, at: int, length: int) -> tuple[str, str, str]:
    """Return the parts of a text before, in and after a place."""
    return (
        cut(text, slice(0, at)),
        cut(text, slice(at, at + length)),
        cut(text, slice(at + length, None)),
    )


def join(separator: str, parts: Iterable[str]) -> str:
    """Return the parts with a separator between them."""
    joined: list[str] = []
    for part in parts:
        joined += [separator, part] if joined else [part]
    return concat(joined)


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """Return the text with `new` in place of `old`."""
    if not old:
        return derived(text.replace(old, new, count), text, new)
    return join(new, split(text, text.split(old, count), old))


def change_case(text: str, changed: str) -> str:
    """Give a text whose characters were changed one by one their origins."""
    return (
        with_origins(changed, origins_of(text))
        if len(changed) == len(text)
        else derived(changed, text)
    )


def derived(result: str, *sources: str) -> str:
    """Return a text computed from others: it is the template's if all of them are."""
    return TemplateText(result) if all(map(is_from_template, sources)) else str(result)
