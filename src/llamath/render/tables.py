"""`Table`, `Text`, `Code` and `Bars`: what a report consists of; every format is written from them.

Cells hold values, not text: a table says once how they are written, and CSV and data frames have
the values themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..utils.named_tuple import NamedTuple
from ..utils.record_type import Record, encode_json


class Column(NamedTuple):
    """A column: its heading, how its values are written, and where it is shown."""

    heading: str
    kind: str = "text"  # one of `cell_text.KINDS`
    key: str | None = None  # in CSV and `rows()`: the heading; "": it is not there
    drop: int = 0  # narrow terminals leave out columns from 1 on, one number after another; 0: none
    below: bool = False  # on a terminal below its row
    wrap: bool = False  # the last column: long texts take several lines
    shown: bool = True  # False: only in CSV and `rows()`

    @property
    def name(self) -> str:
        """The key in CSV and `rows()`."""
        return self.heading if self.key is None else self.key


class Cell(NamedTuple):
    """A value that is written otherwise than its column: as another kind, or as this text."""

    value: Any
    kind: str = ""
    text: str | None = None


class Row(NamedTuple):
    """A row that is indented, or a sum of other rows, or a heading; CSV
    and `rows()` leave the last two out.
    """

    cells: Sequence[Any]
    level: int = 0
    is_sum: bool = False
    is_heading: bool = False  # its first cell stands alone, above the rows that it names


class Step(NamedTuple):
    """A step of a waterfall chart, which only a terminal draws."""

    start: int
    end: int
    is_total: bool = False


class Table(Record):
    """Columns and rows, with a title above and a legend below."""

    columns: tuple[Column, ...]
    rows: tuple[Row | Sequence[Any], ...]
    title: str = ""
    legend: str = ""
    split: bool = False  # too wide, it becomes several tables with the same first column
    most: int | None = None  # rows that a terminal shows; 0: it does not show the table

    @property
    def all_rows(self) -> Iterator[Row]:
        """The rows, each as a `Row`."""
        return (x if isinstance(x, Row) else Row(x) for x in self.rows)

    def select(self, columns: Iterable[int]) -> tuple[list[Column], list[list[Any]]]:
        """Return some columns and their cells in the rows that are no sums."""
        at = list(columns)
        rows = [
            [row.cells[i] for i in at]
            for row in self.all_rows
            if not (row.is_sum or row.is_heading)
        ]
        return [self.columns[i] for i in at], rows

    @property
    def data(self) -> tuple[list[Column], list[list[Any]]]:
        """The columns of CSV and `rows()`, each key once, and their cells."""
        first = {x.name: i for i, x in reversed(list(enumerate(self.columns))) if x.name}
        return self.select(sorted(first.values()))

    def records(self) -> list[dict[str, Any]]:
        """Return each row by the keys of its columns, with its values as JSON has them."""
        columns, rows = self.data
        names = [x.name for x in columns]
        return [
            dict(zip(names, (encode_json(plain_value(x)) for x in row), strict=True))
            for row in rows
        ]


class Text(NamedTuple):
    """A paragraph; one that is a heading stands apart from what is above it."""

    text: str
    style: str = ""  # "bold", "dim" or none
    apart: bool = False
    indent: str = ""
    hanging: str = ""  # the indentation of its other lines, if that is another


class Code(NamedTuple):
    """Lines to paste, which are never broken."""

    text: str
    title: str = ""


class Bar(NamedTuple):
    """A bar of several parts, with a text behind it."""

    label: str
    parts: tuple[int, ...]
    limit: int  # all that there is room for
    text: str = ""


class Bars(NamedTuple):
    """Bars, which only a terminal shows: the numbers are in a table."""

    bars: tuple[Bar, ...]
    marks: tuple[tuple[str, str], ...]  # what each part is, and the character that it is drawn in


class Beside(NamedTuple):
    """Two tables next to each other where there is room for both."""

    left: Table
    right: Table


Part = Table | Text | Code | Bars | Beside


def tables_of(parts: Iterable[Part]) -> Iterator[Table]:
    """Yield the tables among the parts of a report."""
    for x in parts:
        if isinstance(x, Table):
            yield x
        elif isinstance(x, Beside):
            yield from x


def heading(text: str) -> Text:
    """Return a heading."""
    return Text(text, "bold", apart=True)


def plain_value(cell: Any) -> Any:
    """Return the value of a cell."""
    return cell.value if isinstance(cell, Cell) else cell
