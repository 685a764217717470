"""`Report`: the base of every result of the public functions; one line as text, tables in a
notebook, an object as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .record_type import Record


class Report(Record):
    """A result: frozen, with a one-line `repr`, HTML tables for notebooks and `to_json()`, which
    equals the command's `--json`.
    """

    @property
    def summary(self) -> str:
        """The result in one line."""
        return ""

    def html_tables(self) -> Iterable[str]:
        """The tables of `_repr_html_`, each made by `html_table`."""
        return ()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.summary}>"
            if self.summary
            else f"<{type(self).__name__}>"
        )

    def _repr_html_(self) -> str:
        return html_report(self.summary, self.html_tables())


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
    ".llamath p{margin:0 0 8px}"
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


def html_report(summary: str, tables: Iterable[str]) -> str:
    """Return the HTML of a report for a notebook: a line, and tables of `html_table`, in the
    page's style, light and dark.
    """
    line = f"<p>{_escape_html(summary)}</p>" if summary else ""
    return f'<div class="llamath"><style>{_STYLE}</style>{line}{"".join(tables)}</div>'


class HTMLTable(str):
    """A table as HTML that also keeps its cells, for other formats."""

    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    caption: str


def html_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    caption: str = "",
    bold_rows: Iterable[int] = (),
) -> HTMLTable:
    """Return an HTML table with everything escaped; ints get thousands separators, and columns of
    numbers are flushed right.

    A column is flushed right if every cell in it is empty or starts with a digit or a sign;
    `bold_rows` are indices of rows.
    """
    cells = tuple(tuple(row) for row in rows)
    texts = [[_cell_text(cell) for cell in row] for row in cells]
    right = [
        bool(texts) and all(row[i][:1] in "0123456789-−+≈" for row in texts)
        for i in range(len(header))
    ]
    bold = set(bold_rows)
    lines = [_html_row("th", header, right, bold=False)]
    lines += [_html_row("td", row, right, bold=i in bold) for i, row in enumerate(texts)]
    title = f"<caption>{_escape_html(caption)}</caption>" if caption else ""
    table = HTMLTable(
        f"<table>{title}<thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table>"
    )
    table.header, table.rows, table.caption = tuple(header), cells, caption
    return table


def _escape_html(text: str) -> str:
    """Return the text with the characters that mean something in HTML replaced."""
    for char, entity in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ('"', "&quot;"),
        ("'", "&#x27;"),
    ):
        text = text.replace(char, entity)
    return text


def _html_row(tag: str, cells: Sequence[str], right: Sequence[bool], *, bold: bool) -> str:
    filled = (
        f"<{tag}{' class=n' if is_right else ''}>{_escape_html(cell)}</{tag}>"
        for cell, is_right in zip(cells, right, strict=True)
    )
    return f"<tr{' class=b' if bold else ''}>{''.join(filled)}</tr>"


def _cell_text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{int(cell):,}" if isinstance(cell, int) else str(cell)
