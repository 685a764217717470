"""Aligned columns for a terminal, and the few styles that are used there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_elsewhere: ContextVar[bool] = ContextVar("elsewhere", default=False)


@contextmanager
def unstyled() -> Iterator[None]:
    """In here texts are for no terminal: 80 columns, no style."""
    before = _elsewhere.set(True)
    try:
        yield
    finally:
        _elsewhere.reset(before)


def is_styled() -> bool:
    """May output be styled? Only on a terminal, and not against NO_COLOR."""
    return not _elsewhere.get() and sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bold(text: str) -> str:
    """Text that stands out, where that is possible."""
    return f"{BOLD}{text}{PLAIN}" if is_styled() else text


def dim(text: str) -> str:
    """Text that steps back, where that is possible."""
    return f"{DIM}{text}{PLAIN}" if is_styled() else text


def terminal_width() -> int:
    """How wide the terminal is, 80 where there is none; `shutil`, which knows it too, brings every kind of compression along."""
    for ask in () if _elsewhere.get() else (_said, _measured):
        try:
            if (width := ask()) > 0:
                return width
        except (AttributeError, ValueError, OSError):
            continue
    return 80


def _said() -> int:
    return int(os.environ.get("COLUMNS", ""))


def _measured() -> int:
    return os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]  # none is an AttributeError


def align(rows: Sequence[Sequence[str]], right: Sequence[int] = (), gap: int = 2) -> list[str]:
    """Rows as lines; the columns listed in `right` are flushed right. A row of fewer cells ends early."""
    width = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(max(map(len, rows), default=0))]
    return [
        (" " * gap).join(cell.rjust(width[i]) if i in right else cell.ljust(width[i]) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def side_by_side(left: Sequence[str], right: Sequence[str], gap: int = 4) -> list[str]:
    """Two blocks of lines next to each other."""
    width = max(map(len, left), default=0) + gap
    lines = max(len(left), len(right))
    pairs = ((left[i] if i < len(left) else "", right[i] if i < len(right) else "") for i in range(lines))
    return [f"{a:{width}}{b}".rstrip() for a, b in pairs]


def wrap(text: str, indent: str = "  ", width: int | None = None) -> list[str]:
    """Long text over several lines, broken at spaces only."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(indent) + len(line) + 1 + len(word) > (width or terminal_width()):
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line]
