"""The tables of a parameter count: the weights, equal layers together; the groups, the totals and
the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....core.parameter_count import Count, Section, WeightRow
from ....model import DescribedModel
from ....render.tables import Beside, Cell, Column, Part, Row, Table, Text, heading
from ....utils.number_format import format_ranges

_WEIGHTS = (
    Column("group", drop=3),
    Column("weight"),
    Column("shape", key="dims", drop=2),
    Column("", "shape", "shape"),
    Column("parameters", "count", drop=1),
    Column("×", "number", "copies"),
    Column("total", "count"),
    Column("share", "right", "", drop=4),
)
GROUPS = (Column("by group", key="group"), Column("", "count", "total"), Column("", "share", ""))
_COUNTS = (Column("counts", key="count"), Column("", "count", "total"))


def count_tables(model: DescribedModel) -> Iterator[Part]:
    """Yield the folded table with totals and formula."""
    count = model.count
    yield Table(columns=_WEIGHTS, rows=tuple(_rows(count)))
    yield Beside(
        Table(
            columns=GROUPS,
            rows=tuple((name, n, count.share(n)) for name, n in count.groups.items()),
        ),
        Table(columns=_COUNTS, rows=tuple(_counts(count))),
    )
    yield from _formula(count, model.key_by_symbol)


def _rows(count: Count) -> Iterator[Row]:
    for section in count.sections:
        times = int(section.times)
        if section.name == "layers" or section.indices:
            where = format_ranges(section.indices) or f"{times:,} of them"
            parameters = section.each * times
            label = "layer" if section.name == "layers" and where.isdigit() else section.name
            share = _share(count, parameters)
            cells = ("", f"{label} {where}", "", None, section.each, times, parameters, share)
            yield Row(cells, is_sum=True)
        for row in section.rows:
            yield Row(_weight_cells(count, section, row), level=int(bool(section.indices)))


def _weight_cells(count: Count, section: Section, row: WeightRow) -> tuple[Any, ...]:
    weight, copies = row.weight, int(section.times) * int(row.copies)
    path = f"layers.{{l}}.{row.pattern}" if section.indices else row.pattern
    layers = f"{{{format_ranges(section.indices)}}}"
    numbers = layers if section.indices else f"{{0–{int(row.copies) - 1}}}"
    shown = path.removeprefix("layers.{l}.").removesuffix(".weight")
    parameters = int(weight.parameters) * copies
    return (
        row.group,
        Cell(path.replace("{l}", numbers), text=shown),
        *("×".join(x.symbol for x in weight.shape), weight.shape, int(weight.size), copies),
        *(parameters, "tied" if weight.tied else _share(count, parameters)),
    )


def _share(count: Count, parameters: int) -> str:
    return f"{float(count.share(parameters)):.2%}"


def _counts(count: Count) -> Iterator[tuple[str, int]]:
    p = count.parameters
    yield "total", p.total
    yield from ((f"{name} part", n) for name, n in p.parts.items())
    yield "active per token", p.active
    yield "tied head counted twice", p.tied_counted_twice
    yield "without embeddings", p.without_embeddings
    yield "without head", p.without_head
    yield "without both", p.blocks
    if p.per_layer is not None:
        yield "per layer", p.per_layer
    if p.buffers:
        yield "without buffers", p.total - p.buffers
    yield from ((f"not included: {name}", n) for name, n in p.extras.items())


def _formula(count: Count, keys: Mapping[str, str]) -> Iterator[Text]:
    formula = count.formula
    letters = ", ".join(
        f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in formula.letters.items()
    )
    yield heading("formula")
    for text in (
        formula.symbols,
        f"= {formula.numbers}",
        f"= {formula.value:,}",
        f"with {letters}",
    ):
        yield Text(text, indent="  ")
