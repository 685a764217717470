"""`StructureReport`: the result of checking a checkpoint that no config describes tensor by
tensor, such as an adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table
from ....utils.errors import safe
from ....utils.number_format import format_count, format_list
from .verify_tensors import Finding, findings_table

if TYPE_CHECKING:
    from .full_check import FullCheck


class StructureReport(Report):
    """What a checkpoint is, the facts that were read from it, and the findings."""

    path: str
    kind: str  # adapter, fsdp, deepspeed, diffusers, encoder
    title: str  # what it is, in words
    format: str
    checked: str  # what was checked, and what was not, in words
    findings: tuple[Finding, ...]
    expected: int = 0  # tensors that were looked for; 0 if nothing says how many there should be
    matched: int = 0
    model: str | None = None  # the model that it was checked against: an adapter's base
    scheme: str | None = None
    facts: Mapping[str, Any] = {}
    note: str = ""  # on how it was found
    matches: str = ""  # the verdict in words, such as `fits llama-3-8b`
    full: FullCheck | None = None  # None: only headers were read

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "ok",
            "kind",
            "title",
            "scheme",
            "path",
            "model",
            "format",
            "expected",
            "matched",
            "checked",
            "facts",
        ),
        *("findings=all_findings", "full"),
    )

    @property
    def ok(self) -> bool:
        """Return whether nothing contradicts it, and, if its files were read in full, whether no
        finding is an error.
        """
        return self.is_whole and (self.full is None or self.full.ok)

    @property
    def is_whole(self) -> bool:
        """Whether nothing in the headers contradicts it."""
        return all(x.severity == "info" for x in self.findings)

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """The findings; those about values and sums come last."""
        return self.findings + (self.full.findings if self.full else ())

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        bad = sum(x.severity != "info" for x in self.findings)
        answer = self.matches or "is whole"
        full = f"; {self.full.summary}" if self.full else ""
        return (
            f"{safe(self.path)}: {self.title}, "
            f"{answer if self.is_whole else format_count(bad, 'problem')}{full}"
        )

    @property
    def headline(self) -> str:
        """What it is, and the verdict."""
        return self.summary

    @property
    def setting(self) -> str:
        """What was checked."""
        read = self.full is not None and self.full.values_checked
        return self.checked if read else f"{self.checked}; values were not read (--full)"

    @property
    def entries(self) -> Sequence[Finding]:
        """The findings."""
        return self.all_findings

    def __bool__(self) -> bool:
        return self.ok

    def tables(self) -> Iterable[Part]:
        """The facts, what was read, and the findings."""
        facts = {key.replace("_", " "): (x, _fact(x)) for key, x in self.facts.items()}
        rows = tuple((key, Cell(x, text=text)) for key, (x, text) in facts.items() if text)
        if rows:
            yield Table(columns=_FACTS, rows=rows)
        if self.full is not None:
            yield from self.full.parts()
        yield findings_table(self.all_findings)


_FACTS = (Column("", key="fact"), Column("", key="value", wrap=True))


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return format_list(f"{_fact(x)} {safe(str(key), 60)}" for key, x in value.items())
    if isinstance(value, (list, tuple)):
        return format_list(map(_fact, value), 8)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else safe(str(value), 200)
