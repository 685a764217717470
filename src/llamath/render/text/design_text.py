"""Designs as text: the candidates with reasons, or the nearest designs and the binding
constraints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analysis.design.candidate import Candidate
from ...analysis.design.design_ranking import RankedDesign
from ...analysis.design.design_report import DesignReport
from ...analysis.diff.model_diff import DiffReport
from ...analysis.flops.scaling_laws import LAWS, TrainingBudget
from ...model import Model
from ...utils.errors import safe
from ...utils.number_format import format_short_signed, format_signed, short_count
from ..table import align, bold, dim, fit_table, terminal_width, wrap

HEADER = ("#", "layers", "width", "ffn", "heads", "KV", "head", "parameters", "ppm", "width/layers")
RIGHT = range(len(HEADER))
_SEARCHED = (
    "every point of the grid of admissible dimensions is decided, most of them by "
    "intervals computed from the formula of the total"
)


def design_text(report: DesignReport) -> str:
    """Return the report as text."""
    lines = [bold(x) for x in wrap(_head(report), "")]
    lines += [dim(x) for x in wrap(_grid(report), "")]
    lines += [
        "",
        *(_table(report.candidates, report) if report.candidates else _misses(report)),
        "",
    ]
    notes = (
        (_SEARCHED, _ordering_note(report), *report.notes)
        if report.candidates
        else (_SEARCHED, *report.notes)
    )
    lines += [dim(x) for note in notes for x in wrap(f"note: {note}", "")]
    return "\n".join(lines)


def _head(report: DesignReport) -> str:
    request = report.request
    what = "candidate" if report.searched == 1 else "candidates"
    searched = (
        f"{report.searched:,} {what} searched, {report.within:,} within "
        f"{float(100 * request.tolerance):g} %"
    )
    return f"{request.target:,} parameters like {safe(report.series.name)}: {searched}"


def _grid(report: DesignReport) -> str:
    grid = report.grid
    aspect = f"{grid.aspect[0]:.0f} to {grid.aspect[1]:.0f}" if grid.aspect else "free"
    ratio = f"{grid.ratio[0]:.2f}" + (
        f" to {grid.ratio[1]:.2f}" if grid.ratio[0] != grid.ratio[1] else ""
    )
    return (
        f"{report.family} family; width/layers {aspect}, ffn/width {ratio}, ffn a multiple of "
        f"{grid.step}, width of {grid.width_step}"
    )


def _ordering_note(report: DesignReport) -> str:
    if report.request.by_error:
        return (
            "ordered by error; of designs that differ only in the FFN width, only the best is "
            "listed"
        )
    names = ", ".join(x.model.name for x in report.series.members)
    return (
        f"ordered by distance from the habits of {names}; of designs that differ only in the "
        "FFN width, only the best is listed"
    )


def _table(candidates: Sequence[Candidate], report: DesignReport) -> Iterator[str]:
    """One row per candidate, followed by the reasons that not all candidates share."""
    rows = [HEADER, *(_row(i, x) for i, x in enumerate(candidates, 1))]
    lines = fit_table(rows, right=RIGHT, drop=(9, 8))
    shared = (
        [x for x in candidates[0].reasons if all(x in y.reasons for y in candidates)]
        if len(candidates) > 1
        else []
    )
    yield bold(lines[0])
    for line, x in zip(lines[1:], candidates, strict=True):
        yield line
        remarks = (*(y for y in x.reasons if y not in shared), *_constrained(x, report))
        yield from (dim(y) for y in (wrap("; ".join(remarks), "    ") if remarks else ()))
    if shared:
        yield from (dim(y) for y in wrap(f"all: {'; '.join(shared)}", "    "))


def _row(i: int, x: Candidate) -> tuple[str, ...]:
    sizes = (x.layers, x.width, x.ffn, x.heads, x.kv_heads, x.head_dim)
    return (
        str(i),
        *map(str, sizes),
        f"{x.total:,}",
        format_signed(round(x.ppm)),
        f"{x.aspect:.1f}",
    )


def _constrained(x: Candidate, report: DesignReport) -> Iterator[str]:
    """Yield the values that the request constrains besides the total."""
    bounds = report.request.bounds
    if x.active != x.total:
        yield f"{x.active:,} active"
    if bounds.max_kv_per_token is not None:
        yield f"{x.kv_bytes:,} bytes of KV cache per token"
    if bounds.max_memory is not None:
        yield f"{x.weight_bytes:,} bytes of weights in bfloat16"


def _misses(report: DesignReport) -> Iterator[str]:
    misses = report.misses
    if misses is None or not misses.nearest:
        yield "no candidate: the grid is empty under these constraints"
    else:
        yield bold("no candidate; nearest")
        rows = [_near_miss_row(x, report.request.target) for x in misses.nearest]
        for line, (*_, dimensions) in zip(
            align([row[:2] for row in rows], right=(0, 1)), rows, strict=True
        ):
            row_text = f"  {line}  {dimensions}"
            yield from (
                [row_text]
                if len(row_text) <= terminal_width()
                else [f"  {line}", *wrap(dimensions, "    ")]
            )
    for x in misses.binding if misses else ():
        yield from wrap(f"{x.option} rules out every design: without it, {x.within:,} remain", "")
    if misses and not misses.binding:
        yield from wrap(
            "no single constraint rules out every design: relax several, or raise the tolerance", ""
        )


def _near_miss_row(design: RankedDesign, target: int) -> tuple[str, ...]:
    x = design.outer
    return (
        f"{design.total:,}",
        f"{100 * (design.total - target) / target:+.2f} %".replace("-", "−"),
        f"{design.layers} layers, width {x.d}, ffn {design.ffn}, {x.H} heads of {x.h}, {x.K} KV",
    )


def contrast_text(best: Model, other: Model, like: str, report: DiffReport) -> str:
    """Compare with a design of the same size in another series."""
    v = other.count.formula.letters
    sizes = f"{v['L']} layers, width {v['d']:,}, {v['H']} heads, {v.get('K', v['H'])} KV heads"
    lines = [
        bold(x)
        for x in wrap(
            f"the same size like {safe(like)}: {sizes}; {other.parameters.total:,} parameters", ""
        )
    ]
    rows = [(x.label, format_signed(x.delta), format_short_signed(x.delta)) for x in report.causes]
    lines += [f"  {x}" for x in fit_table(rows, right=(1, 2), width=terminal_width() - 2)]
    lines += [
        dim(x)
        for x in wrap(
            f"from {best.parameters.total:,} to "
            f"{other.parameters.total:,}, by the method of llamath diff"
        )
    ]
    return "\n".join(["", *lines])


def budget_text(report: TrainingBudget) -> str:
    """Return the training compute and the optima of the scaling laws as text."""
    law = report.law
    lines = [bold(f"compute, by {law.name}")]
    lines += wrap(
        f"{report.tokens:,} tokens, {report.per_parameter:.1f} per active parameter "
        f"({report.parameters:,})"
    )
    lines += wrap(f"C = 6·N·D = {report.flops:.3g} floating-point operations")
    lines += wrap(
        f"{law.name}: {short_count(round(report.optimal_tokens))} tokens are optimal for this "
        "size, "
        f"{short_count(round(report.optimal_parameters))} parameters for this compute"
    )
    rows = [
        ("law", "optimal tokens", "per parameter", "compute"),
        *(_law(x, report.parameters) for x in LAWS),
    ]
    first, *rest = align(rows, right=(1, 2, 3))
    lines += ["", dim(f"  {first}"), *(f"  {x}" for x in rest)]
    basis = f"{law.name}: {law.says}; {law.source}; {law.trained}"
    beyond = "; this size is an extrapolation" if law.extrapolates(report.parameters) else ""
    return "\n".join(["", *lines, *(dim(x) for x in wrap(f"note: {basis}{beyond}", ""))])


def _law(name: str, parameters: int) -> tuple[str, ...]:
    tokens = LAWS[name].tokens(parameters)
    return (
        name,
        short_count(round(tokens)),
        f"{tokens / parameters:.1f}",
        f"{6 * parameters * tokens:.2e}",
    )
