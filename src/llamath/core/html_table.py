"""HTML tables for notebooks; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """Return a table with a header row; `title` is a line above it."""
    from html import escape

    head = "".join(f"<th>{escape(x)}</th>" for x in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(x))}</td>" for x in row) + "</tr>" for row in rows)
    above = f"<p>{escape(title)}</p>" if title else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
