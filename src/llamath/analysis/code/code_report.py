"""`write_code`: the report of `code`, one readable file that is a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ...model import FamilyModel
from ...render.report import Report
from ...utils.errors import LlamathError, nearest, safe
from ...utils.record_type import encode_json
from .checkpoint_names import scheme_of_files
from .code_file import FileLine, FileWriter

if TYPE_CHECKING:
    from ...render.tables import Part


class CodeReport(Report):
    """The code of a model: its text, and what each line stands for."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "model=model.name",
        "form",
        "parts",
        "parameters",
        "lines",
    )

    model: FamilyModel
    form: str
    parts: tuple[str, ...]  # the classes and functions of the whole file
    parameters: int  # that the file asserts
    code: tuple[FileLine, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """The code."""
        return "".join(f"{x.text}\n" for x in self.code)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Each line with the part of the file that it is in, its operations, and its weights."""
        return [{"line": i, **encode_json(x)} for i, x in enumerate(self.code, 1)]

    @property
    def summary(self) -> str:
        return f"{self.model.name}: {len(self.code):,} lines, {self.parameters:,} parameters"

    def tables(self) -> Iterable[Part]:
        """The code, and a row for each line of it that stands for an operation or a weight."""
        from ...render.tables import Code, Column, Table

        yield Code(self.text)
        columns = (
            Column("line", "number"),
            Column("part", key="block"),
            Column("operations"),
            Column("weights"),
        )
        rows = tuple(
            (i, x.block, " ".join(x.operations), " ".join(x.weights))
            for i, x in enumerate(self.code, 1)
            if x.operations or x.weights
        )
        yield Table(columns=columns, rows=rows, most=0)

    def terminal_text(self) -> str:
        """The code alone, which can be written to a file."""
        return self.text.removesuffix("\n")


def write_code(
    model: FamilyModel, form: str = "torch", names: str = "llamath", part: str = ""
) -> CodeReport:
    """Write the code of a model, or one class or function of it."""
    text = model.text
    writer = FileWriter(text, scheme_of_files(text), hf_attributes=names == "hf")
    if form == "torch":
        lines = writer.lines()
    else:
        from .formulas import formula_lines

        lines = formula_lines(writer, latex=form == "latex")
    parts = tuple(dict.fromkeys(x.block for x in lines if x.block))
    if part:
        lines = _part(lines, parts, part)
    notes = text.notes if text is not model else ()
    return CodeReport(
        model=model,
        form=form,
        parts=parts,
        parameters=writer.trained,
        code=tuple(lines),
        notes=notes,
    )


def _part(lines: list[FileLine], parts: tuple[str, ...], part: str) -> list[FileLine]:
    if part not in parts:
        closest = nearest(part, parts)
        hint = f"did you mean {closest[0]}?" if closest else f"it has {', '.join(parts)}"
        raise LlamathError(f"the file has no part {safe(repr(part), 60)}", hint=hint)
    found = [x for x in lines if x.block == part]
    return list(_without_end(found))


def _without_end(lines: list[FileLine]) -> Iterator[FileLine]:
    while lines and not lines[-1].text:
        lines = lines[:-1]
    yield from lines
