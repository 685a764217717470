"""The count as an HTML table, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .numbers import format_percent, format_ranges, short_count

if TYPE_CHECKING:
    from ..model import Model


def count_html(model: Model) -> str:
    """The folded table; every text from outside is escaped."""
    from html import escape

    report = model.count
    lines = []
    for section in report.sections:
        if section.indices:
            whole = section.each * int(section.times)
            cells = (
                f"layers {format_ranges(section.indices)}",
                "",
                f"{section.each:,}",
                f"{int(section.times)}",
                f"{whole:,}",
                format_percent(report.share(whole)),
            )
            lines.append("<tr style='font-weight:bold'>" + "".join(f"<td>{x}</td>" for x in cells) + "</tr>")
        for row in section.rows:
            symbols, numbers = "×".join(x.symbol for x in row.weight.shape), "×".join(str(int(x)) for x in row.weight.shape)
            copies = int(section.times) * int(row.copies)
            whole = int(row.weight.parameters) * copies
            share = "tied" if row.weight.tied else format_percent(report.share(whole))
            cells = (row.pattern, f"{symbols} = {numbers}", f"{int(row.weight.size):,}", f"{copies}", f"{whole:,}", share)
            lines.append("<tr>" + "".join(f"<td>{escape(x)}</td>" for x in cells) + "</tr>")
    head = "".join(f"<th>{x}</th>" for x in ("weight", "shape", "parameters", "×", "total", "share"))
    title = f"<b>{escape(model.name)}</b>: {report.parameters.total:,} parameters ({short_count(report.parameters.total)})"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<p>{title}</p>{table}<code>{escape(report.formula.symbols)}</code>"
