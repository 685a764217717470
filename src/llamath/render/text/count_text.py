"""The parameter count on a terminal: the folded table, the groups, the totals and the formula;
or the module tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...analysis.count.header_count import HeaderCount, is_rotary_table
from ...checkpoint.naming.scheme import Scheme
from ...core.expr import Expr
from ...core.parameter_count import Count, Section, WeightRow, num_parameters
from ...core.tree import Block, Stack, Weight
from ...model import Model
from ...utils.errors import safe
from ...utils.number_format import format_count, format_percent, format_ranges, short_count
from ...utils.record_type import Record
from ..table import (
    align,
    bold,
    dim,
    fit_table,
    note_lines,
    side_by_side,
    terminal_width,
    wrap,
    wrap_hanging,
)
from .checkpoints.ls_text import codec_lines, dtype_lines, table_lines

_HEADER = ("group", "weight", "shape", "", "parameters", "×", "total", "share")


def count_text(model: Model, layer: int | None = None, scheme: Scheme | None = None) -> str:
    """Return the folded table with totals and formula; with `layer`, only the rows of that
    layer.
    """
    report = model.count
    total = report.parameters.total
    text = f", text model {report.parameters.parts['text']:,}" if report.parameters.parts else ""
    head = [
        bold(line)
        for line in wrap(
            f"{model.name}: {format_count(total, 'parameter')} ({short_count(total)}){text}",
            indent="",
        )
    ]
    head += [
        dim(line) for line in wrap(f"{model.family.name} family, from {model.source}", indent="")
    ]
    body = fit_table(list(_rows(report, layer, scheme)), right=(4, 5, 6, 7), drop=(4, 2, 0, 7))
    lines = [*head, "", bold(body[0]), *body[1:], ""]
    if layer is None:
        lines += [*_sums(report), "", *_formula(report, model.key_by_symbol)]
    return "\n".join([*lines, *note_lines(model.notes)])


def header_count_text(report: HeaderCount, unfold: bool = False) -> Iterator[str]:
    """Yield the total, the folded tensors, dtypes and codecs of a checkpoint of an unsupported
    family.
    """
    listing = report.listing
    tensors = format_count(listing.total.tensors, "tensor")
    yield from map(bold, wrap(report.summary, ""))
    yield from map(
        dim,
        wrap(
            f"{'' if report.has_family else 'no family, '}from the header of {report.source}: "
            f"{listing.manifest.format}, {tensors}",
            "",
        ),
    )
    yield ""
    yield from table_lines(
        [x for x in listing.unfolded() if not is_rotary_table(x)] if unfold else report.rows
    )
    for heading, lines in (("by dtype", dtype_lines(listing)), ("by codec", codec_lines(listing))):
        if lines:
            yield from ("", heading, *(f"  {line}" for line in lines))
    yield from ("", *note_lines([safe(note, 600) for note in report.notes]))


def _rows(report: Count, layer: int | None, scheme: Scheme | None) -> Iterator[tuple[str, ...]]:
    yield _HEADER
    for section in report.sections:
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
            yield (
                "",
                f"{label} {where}",
                "",
                "",
                f"{section.each:,}",
                f"{times}",
                f"{parameters:,}",
                format_percent(report.share(parameters)),
            )
        for row in section.rows:
            yield _row(report, section, row, times, scheme)


def _row(
    report: Count, section: Section, row: WeightRow, times: int, scheme: Scheme | None
) -> tuple[str, ...]:
    weight, copies = row.weight, times * int(row.copies)
    name = row.pattern
    if scheme:
        name = scheme.stored_name(f"layers.{{l}}.{name}" if section.indices else name).removeprefix(
            scheme.prefix + scheme.layer
        )
    name = name.removesuffix(".weight")
    symbols, numbers = (
        "×".join(x.symbol for x in weight.shape),
        "×".join(str(int(x)) for x in weight.shape),
    )
    parameters = int(weight.parameters) * copies
    share = "tied" if weight.tied else format_percent(report.share(parameters))
    return (
        row.group,
        ("  " if section.indices else "") + name,
        symbols,
        numbers,
        f"{int(weight.size):,}",
        f"{copies}",
        f"{parameters:,}",
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
    rows = [
        ("total", p.total),
        *((f"{name} part", n) for name, n in p.parts.items()),
        ("active per token", p.active),
        ("tied head counted twice", p.tied_counted_twice),
    ]
    rows += [
        ("without embeddings", p.without_embeddings),
        ("without head", p.without_head),
        ("without both", p.blocks),
    ]
    if p.per_layer is not None:
        rows.append(("per layer", p.per_layer))
    if p.buffers:
        rows.append(("without buffers", p.total - p.buffers))
    rows += [(f"not included: {name}", n) for name, n in p.extras.items()]
    return [
        "counts",
        *(f"  {line}" for line in align([(what, f"{n:,}") for what, n in rows], right=(1,))),
    ]


def _formula(report: Count, keys: Mapping[str, str]) -> list[str]:
    formula = report.formula
    legend = ", ".join(
        f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in formula.letters.items()
    )
    return [
        "formula",
        *wrap(formula.symbols),
        *wrap(f"= {formula.numbers}"),
        *wrap(f"= {formula.value:,}"),
        *wrap(f"with {legend}"),
    ]


def tree_text(model: Model) -> str:
    """Return the module tree in the style of PyTorch's `print(model)`, equal layers folded, with
    the parameters of each branch.
    """
    claim = f", {model.claim}" if model.claim else ""
    head = wrap(f"{model.name}: {model.parameters.total:,} parameters{claim}", "")
    return "\n".join([*map(bold, head), *_block_lines("", model.tree, "")])


def _block_lines(name: str, block: Block, indent: str, times: str = "") -> Iterator[str]:
    label = f"({name}): " if name else ""
    kind = type(block).__name__
    children = [(x, child) for x, child in block.children if not isinstance(child, Weight)]
    weights = [
        f"{x} [{', '.join(map(_format_dim, w.shape))}]{' tied to ' + w.tied if w.tied else ''}"
        for x, w in _own_weights(block)
    ]
    facts = [
        f"{x}={_format_setting(value)}"
        for x in block.fields
        if _is_setting(value := getattr(block, x))
        and value != getattr(type(block), x, None)
        and x != "claim"
    ]
    inside = ", ".join([*weights, *facts])
    first = f"{label}{times}{kind}({inside}{')' if not children else ''}" + (
        f"  # {num_parameters(block):,}" if children else ""
    )
    yield from wrap_hanging(first, indent, indent + "    ")
    for x, child in children:
        yield from (
            _stack_lines(x, child, indent + "  ")
            if isinstance(child, Stack)
            else _block_lines(x, child, indent + "  ")
        )
    if children:
        yield f"{indent})"


def _stack_lines(name: str, stack: Stack, indent: str) -> Iterator[str]:
    if len(kinds := stack.distinct()) == 1:
        yield from _block_lines(name, kinds[0][0], indent, f"{int(kinds[0][1]):,} × ")
        return
    yield f"{indent}({name}): {int(stack.n):,} of {len(kinds)} kinds("
    for x, n in kinds:
        yield from _block_lines("", x, indent + "  ", f"{int(n):,} × ")
    yield f"{indent})"


def _format_dim(dim: Expr) -> str:
    return f"{dim.symbol}={int(dim)}" if dim.atoms else f"{int(dim)}"


def _own_weights(block: Block) -> list[tuple[str, Weight]]:
    return [(name, child) for name, child in block.children if isinstance(child, Weight)]


def _is_setting(value: object) -> bool:
    return value is not None and not isinstance(value, (Weight, Block, Stack, Mapping))


def _format_setting(value: object) -> str:
    if isinstance(value, Record):
        facts = (
            f"{x}={_format_setting(y)}"
            for x in value.fields
            if (y := getattr(value, x)) != getattr(type(value), x, None)
        )
        return f"{type(value).__name__}({', '.join(facts)})"
    return str(value)
