"""Tables as CSV or Markdown: the weights of a model, folded or one for each tensor, and the
tables of any report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..analysis.count.count_report import check_listable
from ..checkpoint.naming.scheme import Scheme
from ..model import Model
from ..utils.errors import safe
from ..utils.number_format import format_ranges
from ..utils.report import HTMLTable, Report

_FORMULA = re.compile(r"\s*[=@+\-]")
"""The beginnings of cells that spreadsheets compute."""
_NUMBER = re.compile(r"[+-][\d.,]+(?:[eE][+-]?\d{1,3})?(?:%| ?[A-Za-z/]{1,9})?")
_MAX_TEXT = 1 << 16
"""Characters of a cell."""
_HEADER = ("group", "weight", "dims", "shape", "parameters", "copies", "total")


def unfolded_rows(
    model: Model, scheme: Scheme | None, layer: int | None, form: str | None
) -> Iterator[str]:
    """Yield every tensor in tree order: name, shape, parameters; with a scheme, the tensors of
    such files.
    """
    check_listable(model.tree)
    rows = _stored(model, scheme, layer) if scheme else _leaves(model, layer)
    header = ("name", "shape", "parameters")
    if form:
        yield from format_table(header, rows, form)
    else:
        yield from (f"{name}\t{shape}\t{parameters}" for name, shape, parameters in rows)


def _leaves(model: Model, layer: int | None) -> Iterator[tuple[str, str, str]]:
    for leaf in model.weights:
        if layer is None or (leaf.indices and leaf.indices[0] == layer):
            yield leaf.path, _shape(leaf.shape), str(leaf.parameters)


def _stored(model: Model, scheme: Scheme, layer: int | None) -> Iterator[tuple[str, str, str]]:
    start = scheme.in_layer(scheme.prefix + scheme.layer, layer or 0)
    for x in scheme.tensors(model.stored_tree(scheme)):
        if layer is None or x.name.startswith(start):
            yield x.name, _shape(x.shape), str(sum(int(part.weight.parameters) for part in x.parts))


def folded_rows(model: Model, scheme: Scheme | None, layer: int | None, form: str) -> Iterator[str]:
    """Return the folded table, whose `total` column sums to the model's total."""
    return format_table(_HEADER, _folded(model, scheme, layer), form)


def _folded(model: Model, scheme: Scheme | None, layer: int | None) -> Iterator[tuple[str, ...]]:
    for section in model.count.sections:
        if layer is not None and not any(
            a <= layer <= b and (layer - a) % step == 0 for a, b, step in section.indices
        ):
            continue
        layers = 1 if layer is not None else int(section.times)
        start = scheme.first_layer if scheme else 0
        ranges = tuple((a + start, b + start, step) for a, b, step in section.indices)
        layer_range = str(layer + start) if layer is not None else f"{{{format_ranges(ranges)}}}"
        for row in section.rows:
            path = f"layers.{{l}}.{row.pattern}" if section.indices else row.pattern
            name = scheme.stored_name(path) if scheme else path
            name = name.replace(
                "{l}", layer_range if section.indices else f"{{0–{int(row.copies) - 1}}}"
            )
            dims, copies = "×".join(x.symbol for x in row.weight.shape), layers * int(row.copies)
            parameters = copies * int(row.weight.parameters)
            yield (
                row.group,
                name,
                dims,
                _shape(row.weight.shape),
                str(int(row.weight.size)),
                str(copies),
                str(parameters),
            )


def _shape(shape: Iterable[int]) -> str:
    return "×".join(str(int(x)) for x in shape)


_TEXT_COLUMNS = frozenset(
    "group weight name dims shape cause where key moves model dtype codec role file".split()
)
"""Columns of text; all others are right-aligned in Markdown."""


def report_rows(report: Report, form: str, command: str) -> Iterator[str]:
    """Yield the tables of a report, after its summary and the command that prints them."""
    return tables_rows(report.summary, report.html_tables(), form, command)


def tables_rows(summary: str, tables: Iterable[str], form: str, command: str) -> Iterator[str]:
    """Yield tables of `html_table`, after what they are of and the command that prints them.

    A blank line separates tables.
    """
    yield from _statement(summary, form, command)
    for table in tables:
        if isinstance(table, HTMLTable):
            yield ""
            if table.caption:
                yield (
                    markdown_text(_line(table.caption))
                    if form == "markdown"
                    else _comment(_line(table.caption))
                )
                yield from [""] if form == "markdown" else []
            rows = [tuple(map(_cell, row)) for row in table.rows]
            right = [
                bool(rows) and all(row[i][:1] in "0123456789-−+≈" for row in rows)
                for i in range(len(table.header))
            ]
            yield from format_table(table.header, rows, form, right)


def stated_rows(summary: str, rows: Iterable[str], form: str, command: str) -> Iterator[str]:
    """Yield the rows of a table, after what it is of and the command that prints it."""
    yield from _statement(summary, form, command)
    yield ""
    yield from rows


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
    right: Sequence[bool] | None = None,
) -> Iterator[str]:
    """Yield a header and rows as CSV or Markdown, in which columns are flushed right as `right`
    says.

    No cell has markup in Markdown, and no spreadsheet takes one of CSV for a formula.
    """
    if form == "markdown":
        flushed = [name not in _TEXT_COLUMNS for name in header] if right is None else right
        yield f"| {' | '.join(map(markdown_text, header))} |"
        yield f"|{'|'.join(' ---: ' if x else ' --- ' for x in flushed)}|"
        yield from (f"| {' | '.join(map(markdown_text, row))} |" for row in rows)
    else:
        yield ",".join(_quoted(x) for x in header)
        yield from (",".join(_quoted(x) for x in row) for row in rows)


def markdown_text(text: str) -> str:
    """Return a text of one line without HTML, links and code, as Markdown; it reads the same."""
    return re.sub(r"[&<>|`\[\]\\]", lambda x: f"&#{ord(x[0])};", " ".join(text.splitlines()))


def _quoted(cell: str) -> str:
    if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        cell = f"'{cell}"
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if any(x in cell for x in ',"\n\r') else cell
