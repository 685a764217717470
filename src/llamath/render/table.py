"""Aligned columns that fit the terminal, wrapped text, and styles."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_GROUPS = {
    "embedding": 34,
    "head": 35,
    "attention": 33,
    "mixer": 93,
    "mlp": 32,
    "experts": 36,
    "router": 91,
    "norm": 90,
}
"""Groups of weights → the colors of a terminal that are nearest to those of the page: blue, purple,
orange, yellow, green, teal, pink, grey.
"""
_MIN_ROOM = 12
"""The smallest width of a wrapped first column."""
_unstyled: ContextVar[int] = ContextVar("unstyled", default=0)
"""The width of text that has no styles; 0 on a terminal."""


@contextmanager
def unstyled(*, width: int = 80) -> Iterator[None]:
    """Format text for other uses than a terminal: this many columns, no styles."""
    before = _unstyled.set(width)
    try:
        yield
    finally:
        _unstyled.reset(before)


def _is_styled() -> bool:
    """Return whether output may be styled: on a terminal or with FORCE_COLOR, and not with
    NO_COLOR or TERM=dumb.
    """
    if _unstyled.get() or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def bold(text: str) -> str:
    """Return bold text if output is styled."""
    return f"{_BOLD}{text}{_RESET}" if _is_styled() else text


def dim(text: str) -> str:
    """Return dimmed text if output is styled."""
    return f"{_DIM}{text}{_RESET}" if _is_styled() else text


def group_color(line: str, name: str) -> str:
    """Return a line with the name of a group of weights, which it begins with, in its color."""
    color = _GROUPS.get(name)
    start = len(line) - len(line.lstrip())
    if color is None or not _is_styled() or not line.startswith(name, start):
        return line
    end = start + len(name)
    return f"{line[:start]}\x1b[{color}m{line[start:end]}{_RESET}{line[end:]}"


def terminal_lines() -> int:
    """Return the lines of the terminal that the output goes to; 0 if it goes elsewhere."""
    try:
        if _unstyled.get() or sys.stdout is None or not sys.stdout.isatty():
            return 0
        return os.get_terminal_size(sys.stdout.fileno()).lines
    except (AttributeError, ValueError, OSError):
        return 0


def terminal_width() -> int:
    """Return the terminal's width in columns, 80 if there is none; `shutil.get_terminal_size`
    would import compression modules.
    """
    if width := _unstyled.get():
        return width
    for ask in (_width_in_environment, _measured_width):
        try:
            if (width := ask()) > 0:
                return width
        except (AttributeError, ValueError, OSError):
            continue
    return 80


def _width_in_environment() -> int:
    return int(os.environ.get("COLUMNS", ""))


def _measured_width() -> int:
    return os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]  # none is an AttributeError


def align(rows: Sequence[Sequence[str]], right: Sequence[int] = (), gap: int = 2) -> list[str]:
    """Return rows as lines; the columns listed in `right` are flushed right. A row of fewer
    cells ends early.
    """
    return _lines(rows, _widths(rows), right, gap)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column: that of its longest cell."""
    most = max(map(len, rows), default=0)
    if all(len(row) == most for row in rows):
        return [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [max(len(row[i]) for row in rows if i < len(row)) for i in range(most)]


def _lines(
    rows: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[int], gap: int
) -> list[str]:
    marks = [f"%{'' if i in right else '-'}{n}s" for i, n in enumerate(widths)]
    forms = [(" " * gap).join(marks[:n]) for n in range(len(marks) + 1)]
    return [(forms[len(row)] % tuple(row)).rstrip() for row in rows]


def fit_table(
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    drop: Sequence[int | tuple[int, ...]] = (),
    width: int | None = None,
) -> list[str]:
    """Return rows aligned and no wider than the terminal, one string for each row.

    If they are too wide, first the gaps are narrowed, then the columns of `drop` are left out one
    after another (a tuple of columns at once), and at last the first column is wrapped, so that a
    row takes several lines.
    """
    width = width or terminal_width()
    widths = _widths(rows)
    columns = list(range(len(widths)))
    cut, gap = rows, 2
    for step in ((), *drop):
        columns = [i for i in columns if i not in ((step,) if isinstance(step, int) else step)]
        if step != ():
            cut = [[row[i] for i in columns if i < len(row)] for row in rows]
        flushed = [at for at, i in enumerate(columns) if i in right]
        kept = [widths[i] for i in columns]
        for gap in (2, 1):
            if _is_wide(cut, kept, gap, width):
                continue
            lines = _lines(cut, kept, flushed, gap)
            if max(map(len, lines), default=0) <= width:
                return lines
    rest = _lines([row[1:] for row in cut], kept[1:], [at - 1 for at in flushed if at], gap)
    room = max(width - max(map(len, rest), default=0) - gap, _MIN_ROOM)
    return [_wrapped_row(row[0], tail, room, gap) for row, tail in zip(cut, rest, strict=True)]


def _is_wide(rows: Sequence[Sequence[str]], widths: Sequence[int], gap: int, width: int) -> bool:
    """Return whether a row whose last cell is the longest of its column is wider than allowed; if
    the cells of all such rows end in spaces, it is not known.
    """
    if sum(widths) + gap * (len(widths) - 1) <= width:
        return False
    longest = (row[-1] for row in rows if len(row) == len(widths) and len(row[-1]) == widths[-1])
    return any(not x[-1:].isspace() for x in longest if x)


def _wrapped_row(cell: str, tail: str, room: int, gap: int) -> str:
    above, last = [], cell
    if len(cell) > room:
        indent = " " * (len(cell) - len(cell.lstrip()))
        *above, last = wrap(cell.lstrip(), indent, room)
        if len(last) > room:
            above, last = [*above, last], ""
    if tail or last:
        above.append(f"{last:{room}}{' ' * gap}{tail}".rstrip())
    return "\n".join(above)


def visible_length(line: str) -> int:
    """Return the columns that a line takes, without its styles."""
    return len(re.sub(r"\x1b\[\d+m", "", line))


def side_by_side(left: Sequence[str], right: Sequence[str], gap: int = 4) -> list[str]:
    """Return two blocks of lines next to each other."""
    width = max(map(visible_length, left), default=0) + gap
    lines = max(len(left), len(right))
    pairs = (
        (left[i] if i < len(left) else "", right[i] if i < len(right) else "") for i in range(lines)
    )
    return [f"{a}{' ' * (width - visible_length(a))}{b}".rstrip() for a, b in pairs]


def wrap(text: str, indent: str = "  ", width: int | None = None) -> list[str]:
    """Return long text as several lines, broken at spaces only."""
    lines, line, room = [], "", (width or terminal_width()) - len(indent)
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > room:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line]


def wrap_hanging(text: str, indent: str, hanging: str, width: int | None = None) -> list[str]:
    """Return long text as several lines, those after the first indented by `hanging`."""
    first, *_ = wrap(text, indent, width)
    rest = text[len(first) - len(indent) + 1 :]
    return [first, *wrap(rest, hanging, width)] if rest else [first]


def note_lines(notes: Sequence[str]) -> list[str]:
    """Return notes as lines, each note once."""
    return [line for note in dict.fromkeys(notes) for line in wrap(f"note: {note}", "")]
