"""`break_line` and `wrap`: lines of at most 100 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 100
_OPENING = "([{"


def with_comment(code: str, comment: str, column: int = 0) -> str:
    """Return a line with its comment, which begins in a column or after it."""
    return f"{code.ljust(column)}  # {comment}" if comment else code


def wrap(text: str, indent: int = 0) -> list[str]:
    """Return text in lines."""
    lines, margin = [], " " * indent
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else margin + word
    return [*lines, line]


def break_line(line: str) -> list[str]:
    """Return a statement on several lines if it is too long for one, broken inside its outermost
    brackets.
    """
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    found = _brackets(line)
    if found is None and " = " not in line:
        parts = list(_split_words(line.strip()))
        return [indent + x for x in parts] if len(parts) > 1 else [line]
    if found is None:
        goal, _, value = line.partition(" = ")
        return [f"{goal} = (", *break_line(f"{indent}    {value}"), f"{indent})"]
    first, last = found
    inner, end = line[first + 1 : last], line[last:]
    body = f"{indent}    {inner}"
    head = line[: first + 1]
    if len(body) <= WIDTH and not head.lstrip().startswith("from "):
        return [head, body, indent + end]
    parts = list(_split(inner))
    if len(parts) == 1:
        parts = list(_split_words(inner))
        lines = [y for x in parts for y in break_line(f"{indent}    {x}")]
    else:
        rows = _rows(parts, len(indent) + 4) if len(parts) > 12 else parts
        lines = [y for x in rows for y in break_line(f"{indent}    {x},")]
    return [head, *lines, indent + end]


def _rows(parts: list[str], indent: int) -> list[str]:
    """Return short parts joined to rows."""
    rows: list[str] = []
    for x in parts:
        if rows and indent + len(rows[-1]) + len(x) + 4 <= WIDTH:
            rows[-1] += f", {x}"
        else:
            rows.append(x)
    return rows


def _brackets(line: str) -> tuple[int, int] | None:
    """Return the places of the last outermost pair of brackets with something inside."""
    depth, first, found = 0, -1, None
    for x in re.finditer(r"[()\[\]{}]", line):
        i = x.start()
        if x[0] in _OPENING:
            first = i if not depth else first
            depth += 1
        else:
            depth -= 1
            if not depth and i - first > 20:
                found = (first, i)
    return found


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are outside of brackets."""
    depth, start = 0, 0
    for x in re.finditer(r"[()\[\]{},]", text):
        if x[0] != ",":
            depth += 1 if x[0] in _OPENING else -1
        elif not depth:
            yield text[start : x.start()].strip()
            start = x.end()
    if rest := text[start:].strip():
        yield rest


def _split_words(text: str) -> Iterator[str]:
    """Yield the parts of a comprehension or a choice: before `for`, `if` and `else`."""
    depth, start = 0, 0
    for x in re.finditer(r"[()\[\]{}]| (?=for |if |else )", text):
        if x[0] != " ":
            depth += 1 if x[0] in _OPENING else -1
        elif not depth:
            yield text[start : x.start()].strip()
            start = x.end()
    yield text[start:].strip()
