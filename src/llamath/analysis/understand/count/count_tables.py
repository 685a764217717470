"""The tables of a parameter count: the weights, equal layers together; the groups, the totals and
the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....core.blocks import Decoder
from ....core.expr import Expr, product, total
from ....core.parameter_count import Count, Section, WeightRow
from ....model import DescribedModel
from ....render.tables import Beside, Cell, Column, Part, Row, Table, Text, heading
from ....utils.number_format import format_ranges

_WEIGHTS = (
    Column("group", drop=3),
    Column("weight"),
    Column("out×in", key="dims", drop=2),
    Column("", "shape", "shape"),
    Column("parameters", "count", drop=1),
    Column("×", "number", "copies"),
    Column("total", "count"),
    Column("share", "right", "", drop=4),
)
GROUPS = (Column("by group", key="group"), Column("", "count", "total"), Column("", "share", ""))
_SHAPES = (
    "shapes are out×in: a matrix has a row for each output and a column for each input, an "
    "embedding a row for each token"
)
_COUNTS = (Column("counts", key="count"), Column("", "count", "total"))


def count_tables(model: DescribedModel, *, whole_formula: bool = False) -> Iterator[Part]:
    """Yield the letters, the folded table, the totals, and the formula of each group; with
    `whole_formula`, that of the total in letters and in numbers.
    """
    count = model.count
    yield from _letters(count, model.key_by_symbol)
    yield Table(columns=_WEIGHTS, rows=tuple(_rows(count)))
    yield from _passes(model.tree) if isinstance(model.tree, Decoder) else ()
    yield Beside(
        Table(
            columns=GROUPS,
            rows=tuple((name, n, count.share(n)) for name, n in count.groups.items()),
        ),
        Table(columns=_COUNTS, rows=tuple(_counts(count))),
    )
    yield from _whole_formula(count) if whole_formula else _group_formulas(count)


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


def _passes(tree: Decoder) -> Iterator[Text]:
    """Say which layers run again."""
    own, n = tree.own_layers, int(tree.layers.n)
    if own < n:
        text = f"layers {own:,}–{n - 1:,} are layers 0–{own - 1:,} again: {n // own:,} passes"
        yield Text(text, "dim", hanging="  ")


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
    if p.has_sparse_layers:
        yield "active without embeddings", p.active_without_embeddings
        yield "active without both", p.active_blocks
    yield "tied head counted twice", p.tied_counted_twice
    yield "without embeddings", p.without_embeddings
    yield "without head", p.without_head
    yield "without both", p.blocks
    if p.per_layer is not None:
        yield "per layer", p.per_layer
    if p.buffers:
        yield "without buffers", p.total - p.buffers
    yield from ((f"not included: {name}", n) for name, n in p.extras.items())


def _letters(count: Count, keys: Mapping[str, str]) -> Iterator[Text]:
    letters = ", ".join(
        f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}"
        for x, n in count.formula.letters.items()
    )
    yield Text(f"letters: {letters}", "dim", hanging="  ")
    yield Text(_SHAPES, "dim", hanging="  ")


def _group_formulas(count: Count) -> Iterator[Text]:
    """Yield the formula of each group of weights, in letters."""
    formulas = {name: formula for name in count.groups if (formula := _group_formula(count, name))}
    width = max(map(len, formulas), default=0) + 2
    yield heading("formula")
    for name, formula in formulas.items():
        yield Text(f"{name:{width}}{formula}", indent="  ", hanging=" " * (width + 2))
    total = f"in all {count.formula.value:,}; --format formula writes it in one"
    yield Text(total, "dim", indent="  ")


def _group_formula(count: Count, group: str) -> str:
    """Return the parameters of a group: layers of the same formula are taken together."""
    times: dict[str, Expr] = {}
    inner: dict[str, Expr] = {}
    for section in count.sections:
        rows = (x for x in section.rows if x.group == group)
        each = total(product((x.copies, x.weight.parameters)) for x in rows)
        if each:
            key = f"{section.name if section.indices else ''} {each.symbol}"
            inner[key] = each
            times[key] = times[key] + section.times if key in times else Expr.const(section.times)
    return " + ".join(_times(times[key], each) for key, each in inner.items())


def _times(times: Expr, each: Expr) -> str:
    """Return a number of layers times the formula of one."""
    if times == 1 and not times.atoms:
        return each.symbol
    if len(times.terms) > 1:
        return f"({times.symbol})·({each.symbol})"
    is_product = bool(times.atoms) and len(each.terms) == 1
    return product((times, each)).symbol if is_product else f"{times.symbol}·({each.symbol})"


def _whole_formula(count: Count) -> Iterator[Text]:
    formula = count.formula
    yield heading("formula")
    for text in (formula.symbols, f"= {formula.numbers}", f"= {formula.value:,}"):
        yield Text(text, indent="  ")
