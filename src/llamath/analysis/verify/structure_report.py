"""`StructureReport`: the result of checking a checkpoint that no config describes tensor by
tensor, such as an adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ...utils.errors import safe
from ...utils.number_format import format_count
from ...utils.report import Report, html_table
from .verify_tensors import Finding

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

    def html_tables(self) -> Iterable[str]:
        """One row for each finding."""
        yield html_table(
            ("severity", "finding", "hint"),
            [(x.severity, x.message, x.hint) for x in self.all_findings],
        )
