"""The count on a terminal: the folded table, the groups, the formula, and the counts that people confuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...checkpoint.naming.scheme import Scheme
from ...core.number_format import format_percent, format_ranges, short_count
from ...core.parameter_count import Count, Section, WeightRow
from ...model import Model
from ..table import align, bold, dim, side_by_side, terminal_width, wrap

HEADER = ("group", "weight", "shape", "", "parameters", "×", "total", "share")


def count_text(model: Model, layer: int | None = None, scheme: Scheme | None = None) -> str:
    """One screen."""
    report = model.count
    p = report.parameters
    head = [bold(line) for line in wrap(f"{model.name}: {p.total:,} parameters ({short_count(p.total)})", indent="")]
    head += [dim(line) for line in wrap(f"{model.family.name} family, from {model.source}", indent="")]
    body = _fitted(list(_rows(report, layer, scheme)))
    lines = [*head, "", bold(body[0]), *body[1:], ""]
    if layer is None:
        lines += [*_sums(report), "", *_formula(report, model.config.key_by_symbol)]
    lines += [line for note in model.notes for line in wrap(f"note: {note}", indent="")]
    return "\n".join(lines)


def _fitted(rows: list[tuple[str, ...]]) -> list[str]:
    """The table, narrowed to the terminal where it can be: smaller gaps, then without single sizes, letters, groups, shares."""
    whole, lines = range(8), []
    for keep, gap in ((whole, 2), (whole, 1), ((0, 1, 2, 3, 5, 6, 7), 1), ((0, 1, 3, 5, 6, 7), 1), ((1, 3, 5, 6, 7), 1), ((1, 3, 5, 6), 1)):
        cut = [tuple(row[i] for i in keep) for row in rows]
        lines = align(cut, right=[i for i, column in enumerate(keep) if column > 3], gap=gap)
        if max(map(len, lines)) <= terminal_width():
            break
    return lines


def _rows(report: Count, layer: int | None, scheme: Scheme | None) -> Iterator[tuple[str, ...]]:
    yield HEADER
    for section in report.sections:
        many = section.name == "layers" or bool(section.indices)
        if layer is not None and not (many and any(a <= layer <= b and (layer - a) % step == 0 for a, b, step in section.indices)):
            continue
        times = 1 if layer is not None else int(section.times)
        if many:
            where = str(layer) if layer is not None else format_ranges(section.indices) or f"{times:,} of them"
            whole = section.each * times
            label = "layer" if section.name == "layers" and where.isdigit() else section.name
            yield ("", f"{label} {where}", "", "", f"{section.each:,}", f"{times}", f"{whole:,}", format_percent(report.share(whole)))
        for row in section.rows:
            yield _row(report, section, row, times, scheme)


def _row(report: Count, section: Section, row: WeightRow, times: int, scheme: Scheme | None) -> tuple[str, ...]:
    weight, copies = row.weight, times * int(row.copies)
    name = row.pattern
    if scheme:
        name = scheme.stored_name(f"layers.{{l}}.{name}" if section.indices else name).removeprefix(scheme.prefix + scheme.layer)
    name = name.removesuffix(".weight")
    symbols, numbers = "×".join(x.symbol for x in weight.shape), "×".join(str(int(x)) for x in weight.shape)
    whole = int(weight.parameters) * copies
    share = "tied" if weight.tied else format_percent(report.share(whole))
    return (
        row.group,
        ("  " if section.indices else "") + name,
        symbols,
        numbers,
        f"{int(weight.size):,}",
        f"{copies}",
        f"{whole:,}",
        share,
    )


def _sums(report: Count) -> list[str]:
    groups, counts = _groups(report), _counts(report)
    lines = side_by_side(groups, counts, gap=2)
    return lines if max(map(len, lines)) <= terminal_width() else [*groups, "", *counts]


def _groups(report: Count) -> list[str]:
    rows = [(name, f"{n:,}", format_percent(report.share(n))) for name, n in report.groups.items()]
    return ["by group", *(f"  {line}" for line in align(rows, right=(1, 2)))]


def _counts(report: Count) -> list[str]:
    p = report.parameters
    rows = [("total", p.total), ("active per token", p.active), ("tied head counted twice", p.tied_counted_twice)]
    rows += [("without embeddings", p.without_embeddings), ("without head", p.without_head), ("without both", p.blocks)]
    if p.per_layer is not None:
        rows.append(("per layer", p.per_layer))
    if p.buffers:
        rows.append(("without buffers", p.total - p.buffers))
    rows += [(f"apart: {name}", n) for name, n in p.extras.items()]
    return ["counts", *(f"  {line}" for line in align([(what, f"{n:,}") for what, n in rows], right=(1,)))]


def _formula(report: Count, keys: Mapping[str, str]) -> list[str]:
    formula = report.formula
    legend = ", ".join(f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in formula.letters.items())
    return [
        "formula",
        *wrap(formula.symbols),
        *wrap(f"= {formula.numbers}"),
        *wrap(f"= {formula.value:,}"),
        *wrap(f"with {legend}"),
    ]
