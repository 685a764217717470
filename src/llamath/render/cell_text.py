"""Values as text: how each kind of column writes a cell, and which columns are flushed right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..utils.errors import safe
from ..utils.number_format import (
    format_giga,
    format_list,
    format_percent,
    format_ranges,
    format_rate,
    format_short_signed,
    format_si,
    format_signed,
    short_count,
)
from .table import terminal_width
from .tables import Cell, Column, Row, Table

_MAX_TEXT = 200
"""Characters of a text in a cell; names come from strangers' files."""
_MAX_PARAGRAPH = 2000

_NAME_WIDTH, _WIDE = 14, 130


class _Kind(NamedTuple):
    write: Callable[[Any], str]
    right: bool = True


def format_tera(rate: int) -> str:
    """Return FLOP/s as TFLOP/s; nothing if unknown."""
    if not rate:
        return ""
    value = rate / 1e12
    return f"{value:,.1f}".removesuffix(".0") if value < 100 else f"{value:,.0f}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{int(value):,}" if isinstance(value, int) else safe(str(value), _MAX_TEXT)


def _shorten(name: str) -> str:
    """Return the beginning of a long name where the terminal is too narrow for all of it."""
    is_short = len(name) <= _NAME_WIDTH or terminal_width() >= _WIDE
    return safe(name if is_short else f"{name[: _NAME_WIDTH - 1]}…", _MAX_TEXT)


KINDS: Mapping[str, _Kind] = {
    "text": _Kind(_text, right=False),
    "yes or no": _Kind(_text, right=False),
    "fits": _Kind(lambda x: "fits" if x else "✗", right=False),
    "right": _Kind(_text),
    "name": _Kind(_shorten, right=False),
    "list": _Kind(lambda x: format_list(safe(str(y), 80) for y in x), right=False),
    "few": _Kind(lambda x: ", ".join(x if len(x) < 3 else (*x[:2], "…")), right=False),
    "shape": _Kind(lambda x: "×".join(str(int(y)) for y in x), right=False),
    "layers": _Kind(format_ranges, right=False),
    "waterfall": _Kind(lambda _: "", right=False),
    "number": _Kind(lambda x: str(int(x))),
    "count": _Kind(lambda x: f"{int(x):,}"),
    "signed": _Kind(format_signed),
    "short": _Kind(short_count),
    "short signed": _Kind(format_short_signed),
    "SI": _Kind(format_si),
    "GB": _Kind(lambda x: format_giga(x, 10**9)),
    "GiB": _Kind(lambda x: format_giga(x, 2**30)),
    "GiB sold": _Kind(lambda x: f"{x / 2**30:.1f}"),
    "GB/s": _Kind(lambda x: f"{x / 1e9:,.0f}" if x else ""),
    "TFLOP/s": _Kind(format_tera),
    "rate": _Kind(format_rate),
    "ms": _Kind(lambda x: f"{x * 1000:.3g}"),
    "share": _Kind(format_percent),
    "percent": _Kind(lambda x: f"{float(x):.0%}"),
    "percent.1": _Kind(lambda x: f"{float(x):.1%}"),
    ".1": _Kind(lambda x: f"{float(x):,.1f}"),
    ".2": _Kind(lambda x: f"{float(x):,.2f}"),
    ".4": _Kind(lambda x: f"{float(x):,.4f}"),
    "scientific": _Kind(lambda x: f"{float(x):.2e}"),
    "2 digits": _Kind(lambda x: f"{float(x):.2g}"),
    "3 digits": _Kind(lambda x: f"{float(x):.3g}"),
}
"""Kind of a column → how it writes a value, and whether it is flushed right."""


def cell_text(cell: Any, column: Column) -> str:
    """Return a cell as text; a value that is None is an empty text."""
    return cell_writer(column)(cell)


def cell_writer(column: Column) -> Callable[[Any], str]:
    """Return what writes the cells of a column as text."""
    write, is_name = KINDS[column.kind].write, column.kind == "name"
    longest = _MAX_PARAGRAPH if column.wrap or column.below else _MAX_TEXT

    def write_cell(cell: Any) -> str:
        if isinstance(cell, Cell):
            if cell.text is not None:
                return safe(cell.text, longest)
            if cell.kind:
                return cell_text(cell.value, column._replace(kind=cell.kind))
            cell = cell.value
        if isinstance(cell, str) and not is_name:
            return safe(cell, longest)
        return "" if cell is None else write(cell)

    return write_cell


def is_right(column: Column) -> bool:
    """Return whether a column is flushed right."""
    return KINDS[column.kind].right


def shown_columns(table: Table) -> list[int]:
    """Return the columns that are shown: those in which any cell has a text."""
    return [
        i
        for i, x in enumerate(table.columns)
        if x.shown and (not table.rows or any(_texts(table.all_rows, i, x)))
    ]


def _texts(rows: Iterable[Row], place: int, column: Column) -> Iterator[str]:
    write = cell_writer(column)
    return (write(row.cells[place]) for row in rows)


def indented_column(columns: Sequence[Column]) -> int:
    """Return the place of the column that the level of a row indents: the first one that is never
    left out.
    """
    return next((place for place, x in enumerate(columns) if not x.drop), 0)
