"""`FitComparison`: whether a model fits each of several machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ....model import FamilyModel
from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table, Text
from ....utils.number_format import format_list
from .fit_report import FitReport
from .fit_words import format_sequences, gpus_option


class FitComparison(Report):
    """A report for each machine, in the order in which they were given."""

    model: FamilyModel
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

    @property
    def setting(self) -> str:
        """The dtypes and the sequences."""
        first = self.machines[0]
        return (
            f"{first.dtype}, cache in {first.kv_dtype}; "
            f"{format_sequences(first.batch, first.context)}; from {first.model.source}"
        )

    @property
    def entries(self) -> Sequence[FitReport]:
        """The report of each machine."""
        return self.machines

    def tables(self) -> Iterable[Part]:
        """A row for each machine, and the change that gives up least where the model does not
        fit.
        """
        yield Table(columns=_COLUMNS, rows=tuple(map(_cells, self.machines)))
        for place, x in enumerate(y for y in self.machines if not y.fits):
            change = f"fits with {x.instead[0].change}" if x.instead else "no change fits"
            yield Text(f"{gpus_option(x.count, x.gpu)}: {change}", apart=not place)
        yield Text(
            "GiB: of the fullest GPU; context: the longest that fits; decode: a bound in "
            f"tokens/s at {self.context:,} tokens",
            "dim",
            apart=True,
        )

    def __bool__(self) -> bool:
        return self.fits


_COLUMNS = (
    Column("on"),
    Column("", "fits", "fits"),
    Column("GiB each", "GiB", "total"),
    Column("of", "GiB", "memory"),
    Column("context", "count", "max_context"),
    Column("decode ≤", "rate", "decode_ceiling"),
)


def _cells(x: FitReport) -> tuple[Any, ...]:
    stage, gpu = x.fullest
    limits = x.ceilings.decode.tokens_per_second if x.ceilings and x.fits else None
    context = Cell(None, text="any") if x.max_context is None else x.max_context
    return gpus_option(x.count, x.gpu), x.fits, stage.total, gpu.memory, context, limits
