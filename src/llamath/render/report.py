"""`Report`: the base of every result of the public functions; one declaration of its tables is
printed, shown in a notebook, and written as CSV and Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..utils.record_type import Record

if TYPE_CHECKING:
    from .tables import Part


class Report(Record):
    """A result: frozen; `print` writes what the command prints, and `to_json()` equals its
    `--json`. `rows()` has the raw values of a table for a data frame.

    A report iterates and indexes over its entries, and is true unless its verdict is negative:
    `bool(llamath.verify(path))` says whether the checkpoint matches.
    """

    @property
    def summary(self) -> str:
        """The result in one line."""
        return ""

    @property
    def headline(self) -> str:
        """The first line on a terminal."""
        return self.summary

    @property
    def setting(self) -> str:
        """The lines below it: what the numbers are of."""
        return ""

    def tables(self) -> Iterable[Part]:
        """The tables, and the text between them, from which every format is written."""
        return ()

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """The notes below everything else."""
        return getattr(self, "notes", ())

    @property
    def entries(self) -> Sequence[Any]:
        """What the report iterates over: the rows of its first table."""
        return self.rows()

    def rows(self, table: int = 0) -> list[dict[str, Any]]:
        """Return the rows of a table with their raw values, as a data frame takes them; none of a
        report without tables.
        """
        from .tables import tables_of

        tables = list(tables_of(self.tables()))
        return tables[table].records() if tables else []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: Any) -> Any:
        return self.entries[place]

    def __bool__(self) -> bool:
        """Whether the answer is positive; true if the report has no verdict."""
        return True

    def terminal_text(self) -> str:
        """The report as text for a terminal: its headline, tables that fit the width, and notes."""
        from .report_text import report_text

        return report_text(self)

    def short_text(self) -> str:
        """The report in 24 lines, the answer last."""
        from .report_text import report_short_text

        return report_short_text(self)

    def __str__(self) -> str:
        from .table import terminal_width, unstyled

        with unstyled(width=terminal_width()):
            return self.terminal_text()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.summary}>"
            if self.summary
            else f"<{type(self).__name__}>"
        )

    def _repr_html_(self) -> str:
        from .report_html import report_html

        return report_html(self)
