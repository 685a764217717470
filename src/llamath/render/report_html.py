"""A report as HTML for notebooks, in the style of the page, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from .cell_text import cell_text, indented_column, is_right, shown_columns
from .tables import Beside, Code, Part, Table, Text

if TYPE_CHECKING:
    from .report import Report

LIGHT = {"paper": "#fcfbf8", "ink": "#14171c", "ink-2": "#474d57", "rule": "#dfdcd4"}
DARK = {"paper": "#0f131a", "ink": "#eef1f5", "ink-2": "#b4bcc8", "rule": "#2a323f"}
"""The colors of a notebook's tables, which are those of the page."""
_DARK_THEMES = (
    "[data-jp-theme-light=false],body.vscode-dark,body.vscode-high-contrast,html[theme=dark]"
)
_LIGHT_THEMES = "[data-jp-theme-light=true],body.vscode-light,html[theme=light]"
"""How Jupyter, VS Code and Colab say which theme they have, whatever that of the system is."""
_FONT = '-apple-system,BlinkMacSystemFont,"Segoe UI",Roboto,"Noto Sans",system-ui,sans-serif'


def _variables(theme: dict[str, str]) -> str:
    return ";".join(f"--{name}:{color}" for name, color in theme.items())


_STYLE = (
    f".llamath{{{_variables(LIGHT)}}}@media(prefers-color-scheme:dark){{.llamath{{{_variables(DARK)}}}}}"
    f":is({_LIGHT_THEMES}) .llamath{{{_variables(LIGHT)}}}:is({_DARK_THEMES}) "
    f".llamath{{{_variables(DARK)}}}"
    f".llamath{{color:var(--ink);background:var(--paper);font:15px/1.5 {_FONT};padding:12px "
    f"16px;border-radius:8px;overflow-x:auto}}"
    ".llamath p{margin:0 0 8px}.llamath .dim{color:var(--ink-2);font-size:13px}"
    ".llamath .bold{font-weight:650}.llamath pre{overflow-x:auto;font-size:13px}"
    ".llamath "
    "table{border-collapse:collapse;font:inherit;font-variant-numeric:tabular-nums;margin:8px "
    "0;border:0}"
    ".llamath "
    "caption{caption-side:top;text-align:left;font-weight:650;color:var(--ink);padding:4px 0}"
    ".llamath :is(th,td){padding:3px 12px 3px 0;border:0;border-bottom:1px solid "
    "var(--rule);text-align:left;vertical-align:top;"
    "background:none;color:var(--ink);font-size:13px;max-width:62ch}"
    ".llamath th{color:var(--ink-2);font-weight:650}.llamath .n{text-align:right}.llamath .b "
    "td{font-weight:650}"
)


_MAX_ROWS = 200
"""Rows of a table that a notebook shows."""


def report_html(report: Report) -> str:
    """Return the summary, the tables with the text between them, and the notes."""
    notes = (f"note: {x}" for x in report.stated_notes)
    return "".join(
        (
            f'<div class="llamath"><style>{_STYLE}</style>',
            _paragraph(report.summary, ""),
            *_blocks(report.tables()),
            *(_paragraph(x, "dim") for x in notes),
            "</div>",
        )
    )


def _blocks(parts: Iterable[Part]) -> Iterator[str]:
    for x in parts:
        if isinstance(x, Table):
            yield _table(x)
            yield _paragraph(x.legend, "dim")
        elif isinstance(x, Beside):
            yield from map(_table, x)
        elif isinstance(x, Text):
            yield _paragraph(x.text, x.style)
        elif isinstance(x, Code):
            yield _code(x)


def _paragraph(text: str, style: str) -> str:
    if not text:
        return ""
    return f"<p{f' class={style}' if style else ''}>{escape(text)}</p>"


def _code(part: Code) -> str:
    return f"{_paragraph(part.title, 'bold')}<pre>{escape(part.text)}</pre>"


def _table(table: Table) -> str:
    columns = [(i, table.columns[i]) for i in shown_columns(table)]
    right = [is_right(x) for _, x in columns]
    indented = indented_column([x for _, x in columns])
    rows = list(table.all_rows)
    lines = []
    for row in rows[:_MAX_ROWS]:
        cells = [cell_text(row.cells[i], x) for i, x in columns]
        cells[indented] = "\u2003" * row.level + cells[indented]
        lines.append(_row("td", cells, right, bold=row.is_sum or row.is_heading))
    if len(rows) > _MAX_ROWS:
        more = [f"… {len(rows) - _MAX_ROWS:,} more", *("" for _ in columns[1:])]
        lines.append(_row("td", more, right, bold=False))
    title = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = _row("th", [x.heading for _, x in columns], right, bold=False)
    return f"<table>{title}<thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"


def _row(tag: str, cells: Sequence[str], right: Sequence[bool], *, bold: bool) -> str:
    filled = (
        f"<{tag}{' class=n' if is_right else ''}>{escape(cell)}</{tag}>"
        for cell, is_right in zip(cells, right, strict=True)
    )
    return f"<tr{' class=b' if bold else ''}>{''.join(filled)}</tr>"
