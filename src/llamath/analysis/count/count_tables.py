"""The tables of a parameter count: the weights, equal layers together; the groups, the totals and
the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...checkpoint.naming.scheme import Scheme
from ...core.parameter_count import Count, Section, WeightRow
from ...model import Model
from ...render.tables import Beside, Cell, Column, Part, Row, Table, Text, heading
from ...utils.number_format import format_ranges

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


def count_tables(
    model: Model, layer: int | None = None, scheme: Scheme | None = None
) -> Iterator[Part]:
    """Yield the folded table with totals and formula; with `layer`, only the rows of that layer;
    with `scheme`, the names of its files.
    """
    count = model.count
    yield Table(columns=_WEIGHTS, rows=tuple(_rows(count, layer, scheme)))
    if layer is None:
        yield Beside(
            Table(
                columns=GROUPS,
                rows=tuple((name, n, count.share(n)) for name, n in count.groups.items()),
            ),
            Table(columns=_COUNTS, rows=tuple(_counts(count))),
        )
        yield from _formula(count, model.key_by_symbol)


def _rows(count: Count, layer: int | None, scheme: Scheme | None) -> Iterator[Row]:
    for section in count.sections:
        many = section.name == "layers" or bool(section.indices)
        if layer is not None and not (
            many
            and any(a <= layer <= b and (layer - a) % step == 0 for a, b, step in section.indices)
        ):
            continue
        times = 1 if layer is not None else int(section.times)
        if many:
            where = (
                str(layer)
                if layer is not None
                else format_ranges(section.indices) or f"{times:,} of them"
            )
            parameters = section.each * times
            label = "layer" if section.name == "layers" and where.isdigit() else section.name
            share = _share(count, parameters)
            cells = ("", f"{label} {where}", "", None, section.each, times, parameters, share)
            yield Row(cells, is_sum=True)
        for row in section.rows:
            cells = _weight_cells(count, section, row, times, layer, scheme)
            yield Row(cells, level=int(bool(section.indices)))


def _weight_cells(
    count: Count,
    section: Section,
    row: WeightRow,
    times: int,
    layer: int | None,
    scheme: Scheme | None,
) -> tuple[Any, ...]:
    weight, copies = row.weight, times * int(row.copies)
    path = f"layers.{{l}}.{row.pattern}" if section.indices else row.pattern
    name = shown = scheme.stored_name(path) if scheme else path
    shown = shown.removeprefix(scheme.prefix + scheme.layer if scheme else "layers.{l}.")
    first = scheme.first_layer if scheme else 0
    ranges = tuple((a + first, b + first, step) for a, b, step in section.indices)
    layers = str(layer + first) if layer is not None else f"{{{format_ranges(ranges)}}}"
    numbers = layers if section.indices else f"{{0–{int(row.copies) - 1}}}"
    parameters = int(weight.parameters) * copies
    return (
        row.group,
        Cell(name.replace("{l}", numbers), text=shown.removesuffix(".weight")),
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
