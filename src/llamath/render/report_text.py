"""A report on a terminal: its headline, tables that fit the width, and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..utils.errors import safe
from .cell_text import cell_text, cell_writer, indented_column, is_right, shown_columns
from .charts import bar_lines, waterfall
from .table import (
    align,
    bold,
    dim,
    fit_table,
    group_color,
    note_lines,
    side_by_side,
    terminal_width,
    visible_length,
    wrap,
    wrap_hanging,
)
from .tables import Bars, Beside, Code, Column, Part, Row, Step, Table, Text

if TYPE_CHECKING:
    from .report import Report

_BELOW = "    "
"""The indentation of what stands below a row."""
_MIN_ROOM = 24
"""The smallest width of a wrapped last column."""
_MIN_CHART = 12
"""A narrower chart is left out."""
SHORT = 24
"""Lines of the short form: those of a small terminal."""
_LEAST_ROWS = 3
"""Rows of a table that the short form keeps."""
_MAX_TEXT = 4000
"""Characters of a paragraph."""
_MAX_NOTE = 600
"""Characters of a note, which may quote files."""
_STYLES: Mapping[str, Callable[[str], str]] = {"bold": bold, "dim": dim, "": str}


def report_text(report: Report, parts: Iterable[Part] | None = None) -> str:
    """Return the whole report, or other parts of it."""
    headline = safe(report.headline, _MAX_NOTE)
    lines = [bold(x) for x in wrap(headline, "")] if headline else []
    for setting in report.setting.splitlines():
        lines += map(dim, wrap(safe(setting, _MAX_NOTE), ""))
    lines += parts_lines(report.tables() if parts is None else parts, apart=bool(lines))
    if report.stated_notes:
        lines += ["", *note_lines([safe(x, _MAX_NOTE) for x in report.stated_notes])]
    return "\n".join(lines)


def report_short_text(report: Report, most: int = SHORT) -> str:
    """Return the report in at most so many lines: its tables, the longest ones cut, without what
    explains them, and at last the answer.
    """
    answer = wrap(safe(report.summary, _MAX_NOTE), "")
    parts = [x for x in report.tables() if not (isinstance(x, Text) and x.style == "dim")]
    lines = _single_lines(parts)
    room = most - len(answer) - 1
    while len(lines) > room:
        tables = [x for x in parts if isinstance(x, Table) and len(x.rows) and x.most != 0]
        longest = max(tables, key=_shown_rows, default=None)
        if longest is None or _shown_rows(longest) <= _LEAST_ROWS:
            lines = [*lines[: max(room - 1, 0)], dim("…")]
            break
        fewer = max(_shown_rows(longest) - max(len(lines) - room, 1) - 1, _LEAST_ROWS)
        parts = [x.replace(most=fewer) if x is longest else x for x in parts]
        lines = _single_lines(parts)
    return "\n".join([*lines, "", *map(bold, answer)])


def _single_lines(parts: Iterable[Part]) -> list[str]:
    return [line for x in parts_lines(parts) for line in x.split("\n")]


def _shown_rows(table: Table) -> int:
    return len(table.rows) if table.most is None else min(table.most, len(table.rows))


def parts_lines(parts: Iterable[Part], *, apart: bool = False) -> Iterator[str]:
    """Yield the lines of tables and text, with empty lines between them; the first one stands
    apart from what is above it.
    """
    previous: object = None
    for part in parts:
        if isinstance(part, Table) and part.most == 0:
            continue
        if apart and (part.apart if isinstance(part, Text) else not _is_heading(previous)):
            yield ""
        yield from part_lines(part)
        previous, apart = part, True


def _is_heading(part: object) -> bool:
    return isinstance(part, Text) and part.style == "bold"


def part_lines(part: Part) -> Iterator[str]:
    """Yield the lines of a part."""
    if isinstance(part, Table):
        yield from _table_lines(part)
    elif isinstance(part, Code):
        yield from [bold(part.title)] if part.title else []
        yield from part.text.splitlines()
    elif isinstance(part, Beside):
        left, right = list(_table_lines(part.left)), list(_table_lines(part.right))
        lines = side_by_side(left, right)
        fits = max(map(visible_length, lines), default=0) <= terminal_width()
        yield from lines if fits else [*left, "", *right]
    elif isinstance(part, Bars):
        yield from bar_lines(part)
    else:
        hanging = part.hanging or part.indent
        text = safe(part.text, _MAX_TEXT)
        yield from map(_STYLES[part.style], wrap_hanging(text, part.indent, hanging))


def _table_lines(table: Table) -> Iterator[str]:
    if table.title:
        yield from map(bold, wrap(safe(table.title, _MAX_NOTE), ""))
    rows = list(table.all_rows)[: table.most]
    at = [i for i in shown_columns(table) if not table.columns[i].below]
    legend = [table.legend] if table.legend else []
    for i, columns in enumerate(_pieces(table, rows, at) if table.split else [at]):
        yield from [""] if i else []
        yield from _rows_lines(table, rows, columns, legend)
    if more := len(table.rows) - len(rows):
        yield dim(f"and {more:,} more (--json lists all)")
    for text in legend:
        yield from map(dim, wrap(safe(text, _MAX_TEXT), ""))


def _rows_lines(
    table: Table, rows: Sequence[Row], at: Sequence[int], legend: list[str]
) -> Iterator[str]:
    """Yield a header and rows, with what stands below each; a waterfall adds to the legend."""
    columns = table.columns
    chart = next((i for i, x in enumerate(columns) if x.kind == "waterfall"), None)
    header = [columns[i].heading for i in at] if any(columns[i].heading for i in at) else []
    flat = [x for x in rows if not x.is_heading]
    cells = [*([header] if header else []), *_cells(flat, [(i, columns[i]) for i in at])]
    right = [place for place, i in enumerate(at) if is_right(columns[i])]
    if columns[at[-1]].wrap:
        lines = _wrap_last(cells, right)
    elif chart is not None:
        lines = _with_chart(cells, right, [x.cells[chart] for x in flat], legend)
    else:
        lines = fit_table(cells, right=right, drop=_dropped([columns[i] for i in at]))
    if header:
        yield dim(lines[0]) if table.title else bold(lines[0])
    rest = iter(lines[len(cells) - len(flat) :])
    below = [i for i in shown_columns(table) if columns[i].below]
    for i, row in enumerate(rows):
        if row.is_heading:
            yield from ["", *map(bold, wrap(cell_text(row.cells[0], columns[0]), ""))][not i :]
            continue
        yield group_color(next(rest), str(row.cells[0]))
        for j in below:
            if text := cell_text(row.cells[j], columns[j]):
                yield from map(dim, wrap(text, _BELOW + "  " * row.level))


def _with_chart(
    cells: Sequence[Sequence[str]], right: Sequence[int], steps: Sequence[Step], legend: list[str]
) -> list[str]:
    """Return rows with a waterfall chart, which is left out where there is no room."""
    lines = fit_table(cells, right=right, width=max(terminal_width() - _MIN_CHART - 2, _MIN_ROOM))
    indent = max(len(y) for x in lines for y in x.splitlines()) + 2
    if (room := terminal_width() - indent) < _MIN_CHART:
        return fit_table(cells, right=right)
    bars, note = waterfall(steps, room)
    legend[:0] = [note] if note else []
    parts = [(*x.splitlines()[:-1], x.splitlines()[-1]) for x in lines]
    return [
        "\n".join([*above, f"{last:{indent}}{bar}".rstrip()])
        for (*above, last), bar in zip(parts, bars, strict=True)
    ]


def _pieces(table: Table, rows: Sequence[Row], at: Sequence[int]) -> Iterator[list[int]]:
    """Yield the columns of as many tables as the terminal is narrow."""
    first, *rest = at
    widths = {i: max(len(cell_text(row.cells[i], table.columns[i])) for row in rows) for i in at}
    widths |= {i: max(widths[i], len(table.columns[i].heading)) for i in at}
    piece, room = [first], terminal_width() - widths[first]
    for i in rest:
        if len(piece) > 1 and room < widths[i] + 2:
            yield piece
            piece, room = [first], terminal_width() - widths[first]
        piece.append(i)
        room -= widths[i] + 2
    yield piece


def _wrap_last(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Return rows whose last column takes as many lines as it needs."""
    starts = align([row[:-1] for row in rows], right)
    indent = max(map(len, starts), default=0) + 2
    if terminal_width() - indent < _MIN_ROOM:
        return [
            "\n".join([start, *wrap(row[-1], _BELOW)])
            for start, row in zip(starts, rows, strict=True)
        ]
    lines = []
    for start, row in zip(starts, rows, strict=True):
        first, *rest = wrap(row[-1], " " * indent)
        lines.append("\n".join([f"{start:{indent}}{first[indent:]}".rstrip(), *rest]))
    return lines


def _cells(rows: Sequence[Row], columns: Sequence[tuple[int, Column]]) -> Iterator[list[str]]:
    """Yield the texts of rows, the first column that stays indented by the level of the row."""
    place, writers = indented_column([x for _, x in columns]), [cell_writer(x) for _, x in columns]
    at = [i for i, _ in columns]
    for row in rows:
        texts = [write(row.cells[i]) for i, write in zip(at, writers, strict=True)]
        if row.level:
            texts[place] = "  " * row.level + texts[place]
        yield texts


def _dropped(columns: Sequence[Column]) -> list[tuple[int, ...]]:
    """Return the columns that are left out one after another, or together."""
    steps = sorted({x.drop for x in columns} - {0})
    return [tuple(i for i, x in enumerate(columns) if x.drop == step) for step in steps]
