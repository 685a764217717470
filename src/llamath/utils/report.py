"""`Report`: the base of every result of the public functions; one line as text, tables in a notebook, an object as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .record_type import Record


class Report(Record):
    """A result: frozen, with a one-line `repr`, HTML tables for notebooks and `to_json()`, which equals the command's `--json`."""

    @property
    def summary(self) -> str:
        """The result in one line."""
        return ""

    def html_tables(self) -> Iterable[str]:
        """The tables of `_repr_html_`, each made by `html_table`."""
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>" if self.summary else f"<{type(self).__name__}>"

    def _repr_html_(self) -> str:
        return f"<p>{_escape_html(self.summary)}</p>{''.join(self.html_tables())}"


_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5em 0"
_CAPTION = "caption-side:top;text-align:left;font-weight:bold;padding:.2em 0"
_CELL = "padding:.15em .7em;border-bottom:1px solid rgba(128,128,128,.3);vertical-align:top"


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", bold_rows: Iterable[int] = ()) -> str:
    """Return an HTML table with everything escaped; ints get thousands separators, and columns of numbers are flushed right.

    A column is flushed right if every cell in it is empty or starts with a digit or a sign; `bold_rows` are indices of rows.
    """
    texts = [[_cell_text(cell) for cell in row] for row in rows]
    right = [bool(texts) and all(row[i][:1] in "0123456789-−+≈" for row in texts) for i in range(len(header))]
    bold = set(bold_rows)
    lines = [_html_row("th", header, right, bold=True)]
    lines += [_html_row("td", row, right, bold=i in bold) for i, row in enumerate(texts)]
    title = f"<caption style='{_CAPTION}'>{_escape_html(caption)}</caption>" if caption else ""
    return f"<table style='{_TABLE}'>{title}<thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table>"


def _escape_html(text: str) -> str:
    """Return the text with the characters that mean something in HTML replaced."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(char, entity)
    return text


def _html_row(tag: str, cells: Sequence[str], right: Sequence[bool], *, bold: bool) -> str:
    weight = "bold" if bold else "normal"
    styles = (f"{_CELL};text-align:{'right' if x else 'left'};font-weight:{weight}" for x in right)
    filled = (f"<{tag} style='{style}'>{_escape_html(cell)}</{tag}>" for style, cell in zip(styles, cells, strict=True))
    return f"<tr>{''.join(filled)}</tr>"


def _cell_text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{int(cell):,}" if isinstance(cell, int) else str(cell)
