"""Paragraphs and tables of docs/concepts/accuracy.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill

Rows = Iterable[Sequence[str]]


def table(header: Sequence[str], rows: Rows) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join(' --- ' for _ in header)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def wrap(text: str, indent: str = "") -> str:
    return fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def equal(printed: str, here: str) -> bool:
    """Return whether the figures of two texts are equal, to the digits that the first prints."""
    pattern = r"\d[\d,]*(?:\.\d+)?(?:e\d+)?"
    pairs = list(zip(re.findall(pattern, printed), re.findall(pattern, here), strict=True))
    decimals = [len(x.partition("e")[0].partition(".")[2]) for x, _ in pairs]
    return all(
        x == y or ("e" not in x and abs(_number(x) - _number(y)) <= 0.5001 * 10**-n)
        for (x, y), n in zip(pairs, decimals, strict=True)
    )


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def agreed(rows: Rows) -> Iterator[tuple[str, str]]:
    """Yield the names and figures of rows whose published figures are llamath's."""
    for name, printed, here in rows:
        assert equal(printed, here), (name, printed, here)
        yield name, printed


def figures(rows: Rows) -> list[str]:
    """Return the figures of rows in which both are equal: a list, or one paragraph if their names
    are single words."""
    both = list(agreed(rows))
    if any(" " in name for name, _ in both):
        return [wrap(f"- {name}: {printed}", "  ") for name, printed in both]
    return [wrap("; ".join(f"{name} {printed}" for name, printed in both) + ".")]


def grid(rows: Rows, corner: str) -> Iterator[str]:
    """Yield a table of the figures of rows whose names have two parts, "ROW, COLUMN"."""
    cells = {tuple(name.split(", ", 1)): printed for name, printed in agreed(rows)}
    columns = list(dict.fromkeys(x for x, _ in cells))
    lines = list(dict.fromkeys(x for _, x in cells))
    yield from table(
        (corner, *columns), ([y, *(cells.get((x, y), "") for x in columns)] for y in lines)
    )
