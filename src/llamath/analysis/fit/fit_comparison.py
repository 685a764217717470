"""`FitComparison`: whether a model fits each of several machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ...model import Model
from ...utils.number_format import format_giga, format_list
from ...utils.report import Report, html_table
from .fit_report import FitReport
from .suggestions import gpus_option


class FitComparison(Report):
    """A report for each machine, in the order in which they were given."""

    model: Model
    machines: tuple[FitReport, ...]

    json_fields: ClassVar[tuple[str, ...]] = (
        "model=model.name",
        "source=model.source",
        "fits",
        "machines",
    )

    @property
    def fits(self) -> bool:
        """Return whether the model fits any of the machines."""
        return any(x.fits for x in self.machines)

    @property
    def context(self) -> int:
        """The tokens of a sequence."""
        return self.machines[0].context

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that all machines share."""
        shared = [set(x.notes) for x in self.machines]
        return tuple(x for x in self.machines[0].notes if all(x in y for y in shared))

    @property
    def checkpoint_notes(self) -> tuple[str, ...]:
        """Those of the notes that tell how the files differ from the model."""
        return self.machines[0].checkpoint_notes

    @property
    def summary(self) -> str:
        """The machines that fit the model, and those that do not."""
        fitting, others = (
            [gpus_option(x.count, x.gpu) for x in self.machines if x.fits is y]
            for y in (True, False)
        )
        verdicts = [
            f"{what} {format_list(names)}"
            for what, names in (("fits", fitting), ("does not fit", others))
            if names
        ]
        return f"{self.model.name}, {self.context:,} tokens: {'; '.join(verdicts)}"

    def html_tables(self) -> Iterable[str]:
        """One row for each machine."""
        rows = [
            (
                gpus_option(x.count, x.gpu),
                "fits" if x.fits else "does not fit",
                format_giga(x.total, 2**30),
            )
            for x in self.machines
        ]
        yield html_table(("GPUs", "verdict", "GiB on the fullest"), rows)
