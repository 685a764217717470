"""The tables of a report as CSV, with raw values, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..utils.errors import safe
from .cell_text import cell_writer, is_right, shown_columns
from .tables import Beside, Code, Column, Part, Table, Text, plain_value

if TYPE_CHECKING:
    from .report import Report

_FORMULA_SIGNS = frozenset("=@+-")
"""The beginnings of cells that spreadsheets compute."""
_QUOTED = frozenset(',"\n\r')
"""Characters of cells that are written in quotes."""
_NUMBER = re.compile(r"[+-][\d.,]+(?:[eE][+-]?\d{1,3})?(?:%| ?[A-Za-z/]{1,9})?")
_MAX_TEXT = 1 << 16
"""Characters of a cell."""


def report_rows(
    report: Report, form: str, command: str, parts: Iterable[Part] | None = None
) -> Iterator[str]:
    """Yield a report, or other parts of it, after its summary and the command that prints it."""
    yield from tables_rows(
        report.summary, report.tables() if parts is None else parts, form, command
    )
    if form == "markdown":
        yield from _note_rows(report)


def tables_rows(summary: str, parts: Iterable[Part], form: str, command: str) -> Iterator[str]:
    """Yield tables, after what they are of and the command that prints them."""
    yield from _statement(summary, form, command)
    for part in parts:
        yield from part_rows(part, form)


def markdown_rows(report: Report) -> Iterator[str]:
    """Yield the tables and texts of a report as Markdown, and its notes."""
    for part in report.tables():
        yield from part_rows(part, "markdown")
    yield from _note_rows(report)


def _note_rows(report: Report) -> Iterator[str]:
    for note in report.stated_notes:
        yield from ("", markdown_text(_line(f"note: {note}")))


def part_rows(part: Part, form: str) -> Iterator[str]:
    """Yield a table after a blank line; and in Markdown, a paragraph or lines to paste."""
    if isinstance(part, Table):
        yield ""
        if part.title:
            title = _line(part.title)
            yield from [markdown_text(title), ""] if form == "markdown" else [_comment(title)]
        yield from _table_rows(part, form)
        if part.legend and form == "markdown":
            yield from ("", markdown_text(_line(part.legend)))
    elif isinstance(part, Beside):
        yield from (line for table in part for line in part_rows(table, form))
    elif form == "markdown" and isinstance(part, Code):
        yield from ("", *_code_lines(part))
    elif form == "markdown" and isinstance(part, Text):
        yield from _text_lines(part)


def _text_lines(part: Text) -> Iterator[str]:
    text = markdown_text(_line(part.text))
    yield from ("", f"**{text}**" if part.style == "bold" else text)


def _code_lines(part: Code) -> Iterator[str]:
    yield from [f"**{markdown_text(_line(part.title))}**", ""] if part.title else []
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", part.text)), default=0))
    yield from (fence, *(safe(x, _MAX_TEXT) for x in part.text.splitlines()), fence)


def _table_rows(table: Table, form: str) -> Iterator[str]:
    if form == "csv":
        columns, rows = table.data
        raw = [_raw_writer(x) for x in columns]
        cells = (tuple(write(x) for write, x in zip(raw, row, strict=True)) for row in rows)
        yield from format_table(tuple(x.name for x in columns), cells, form)
        return
    shown = [(i, table.columns[i]) for i in shown_columns(table)]
    writers = [(i, cell_writer(x)) for i, x in shown]
    cells = (tuple(_line(write(row.cells[i])) for i, write in writers) for row in table.all_rows)
    right = [is_right(x) for _, x in shown]
    yield from format_table(tuple(x.heading for _, x in shown), cells, form, right)


def _raw_writer(column: Column) -> Callable[[Any], str]:
    """Return what writes values as CSV has them: numbers in full, lists and shapes as the table
    shows them.
    """
    write = cell_writer(column)

    def write_raw(cell: Any) -> str:
        value = plain_value(cell)
        if value is None or isinstance(value, bool | int | str):
            return _cell(value)
        return repr(float(value)) if hasattr(value, "__float__") else _line(write(value))

    return write_raw


def _statement(summary: str, form: str, command: str) -> Iterator[str]:
    """Yield what tables are of and the command that prints them: comments (`# …`) in CSV,
    paragraphs in Markdown.
    """
    if form == "csv":
        yield _comment(_line(summary))
        yield _comment(command)
    else:
        fence = "`" * (1 + max(map(len, re.findall("`+", command)), default=0))
        space = " " if len(fence) > 1 else ""
        yield from (markdown_text(_line(summary)), "", f"{fence}{space}{command}{space}{fence}")


def _comment(text: str) -> str:
    """Return a comment of CSV; what follows a comma in it is a cell to a spreadsheet, and no
    formula either.
    """
    return "# " + re.sub(r"([,;\t]\s*)(?=[=@]|[+-][^\d])", r"\1'", text)


def _line(text: str) -> str:
    return safe(" ".join(text.split()), _MAX_TEXT)


def _cell(value: object) -> str:
    """Return a cell; names of files and models are escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(int(value))
    return _line(str(value))


def format_table(
    header: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    form: str,
    right: Sequence[bool] = (),
) -> Iterator[str]:
    """Yield a header and rows as CSV or Markdown, in which columns are flushed right as `right`
    says.

    No cell has markup in Markdown, and no spreadsheet takes one of CSV for a formula.
    """
    if form == "markdown":
        yield f"| {' | '.join(map(markdown_text, header))} |"
        yield f"|{'|'.join(' ---: ' if x else ' --- ' for x in right)}|"
        yield from (f"| {' | '.join(map(markdown_text, row))} |" for row in rows)
    else:
        yield ",".join(_quoted(x) for x in header)
        yield from (",".join(_quoted(x) for x in row) for row in rows)


def markdown_text(text: str) -> str:
    """Return a text of one line without HTML, links and code, as Markdown; it reads the same."""
    return re.sub(r"[&<>|`\[\]\\]", lambda x: f"&#{ord(x[0])};", " ".join(text.splitlines()))


def _quoted(cell: str) -> str:
    if cell.lstrip()[:1] in _FORMULA_SIGNS and not _NUMBER.fullmatch(cell):
        cell = f"'{cell}"
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if not _QUOTED.isdisjoint(cell) else cell
