"""The tables of designs: the candidates with reasons, or the nearest designs and the binding
constraints; the same size in another series; and the training compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....render.tables import Cell, Column, Part, Row, Table, Text
from ....utils.number_format import short_count
from ...size.flops.scaling_laws import LAWS, TrainingBudget

if TYPE_CHECKING:
    from .candidate import Candidate
    from .design_ranking import RankedDesign
    from .design_report import DesignContrast, DesignReport

_CANDIDATES = (
    Column("#", "number", "rank"),
    Column("layers", "number"),
    Column("width", "number"),
    Column("ffn", "number"),
    Column("heads", "number"),
    Column("KV", "number", "kv_heads"),
    Column("head", "number", "head_dim"),
    Column("parameters", "count"),
    Column("ppm", "signed", drop=2),
    Column("distance", ".2", drop=1),
    Column("aspect", shown=False),
    Column("kv_bytes", shown=False),
    Column("reasons", below=True),
)
_NEAREST = (
    Column("", "count", "parameters"),
    Column("", "right", "error"),
    Column("", key="design", wrap=True),
)
_CAUSES = (
    Column("", key="cause"),
    Column("", "signed", "difference"),
    Column("", "short signed", ""),
)
_LAWS = (
    Column("law"),
    Column("optimal tokens", "short", "optimal_tokens"),
    Column("per parameter", ".1", "tokens_per_parameter"),
    Column("compute", "scientific", "flops"),
)


def design_tables(report: DesignReport) -> Iterator[Part]:
    """Yield the candidates or the nearest designs, the contrast, and the training compute."""
    if report.candidates:
        yield from _candidates(report)
    else:
        yield from _misses(report)
    if report.contrast is not None and report.best is not None:
        yield _contrast(report.contrast, report.best)
    if report.budget is not None:
        yield from _budget(report.budget)


def design_head(report: DesignReport) -> str:
    """Return the target, and how many candidates there are."""
    request = report.request
    what = "candidate" if report.searched == 1 else "candidates"
    active = "" if request.active is None else f" ({request.active:,} active)"
    return (
        f"{request.target:,} parameters{active} like {report.series.name}: "
        f"{report.searched:,} {what} searched, {report.within:,} within "
        f"{float(100 * request.tolerance):g}%"
    )


def grid_text(report: DesignReport) -> str:
    """Return the family and the grid of dimensions."""
    grid = report.grid
    aspect = f"{grid.aspect[0]:.0f} to {grid.aspect[1]:.0f}" if grid.aspect else "free"
    ratio = " to ".join(dict.fromkeys(f"{x:.2f}" for x in grid.ratio)) if grid.ratio else "free"
    return (
        f"{report.family} family; width/layers {aspect}, ffn/width {ratio}, ffn a multiple of "
        f"{grid.step}, width of {grid.width_step}"
    )


def search_notes(report: DesignReport) -> Iterator[str]:
    """Yield how the grid was searched, and how the designs are ordered."""
    yield (
        "every point of the grid of admissible dimensions is decided, most of them by "
        "intervals computed from the formula of the total"
    )
    if report.candidates:
        names = ", ".join(x.model.name for x in report.series.members)
        order = "error" if report.request.by_error else f"distance from the habits of {names}"
        yield (
            f"ordered by {order}; of designs that differ only in the FFN width, only the best is "
            "listed"
        )


def _candidates(report: DesignReport) -> Iterator[Part]:
    """Yield a row for each candidate, and the reasons that all of them share."""
    found = report.candidates
    shared = (
        [x for x in found[0].reasons if all(x in y.reasons for y in found)]
        if len(found) > 1
        else []
    )
    rows = []
    for i, x in enumerate(found, 1):
        remarks = (*(y for y in x.reasons if y not in shared), *_constrained(x, report))
        sizes = (x.layers, x.width, x.ffn, x.heads, x.kv_heads, x.head_dim)
        reasons = Cell(x.reasons, text="; ".join(remarks))
        rows.append((i, *sizes, x.total, round(x.ppm), x.distance, x.aspect, x.kv_bytes, reasons))
    yield Table(
        columns=_CANDIDATES,
        rows=tuple(rows),
        legend=f"all: {'; '.join(shared)}" if shared else "",
    )


def _constrained(x: Candidate, report: DesignReport) -> Iterator[str]:
    """Yield the values that the request constrains besides the total."""
    bounds = report.request.bounds
    if x.active != x.total:
        yield f"{x.active:,} active"
    if bounds.max_kv_per_token is not None:
        yield f"{x.kv_bytes:,} bytes of KV cache per token"


def _misses(report: DesignReport) -> Iterator[Part]:
    misses = report.misses
    if misses is None or not misses.nearest:
        yield Text("no candidate: the grid is empty under these constraints", apart=True)
    else:
        target = report.request.target
        rows = tuple(_near_miss_cells(x, target) for x in misses.nearest)
        yield Table(title="no candidate; nearest", columns=_NEAREST, rows=rows)
    if misses is None:
        return
    for x in misses.binding:
        yield Text(f"{x.option} rules out every design: without it, {x.within:,} remain")
    if not misses.binding:
        yield Text(
            "no single constraint rules out every design: relax several, or raise the tolerance"
        )


def _near_miss_cells(design: RankedDesign, target: int) -> tuple[Any, ...]:
    x, error = design.outer, (design.total - target) / target
    return (
        design.total,
        Cell(error, text=f"{100 * error:+.2f}%".replace("-", "−")),
        f"{design.layers} layers, width {x.d}, ffn {design.ffn}, {x.H} heads of {x.h}, {x.K} KV",
    )


def _contrast(contrast: DesignContrast, best: Candidate) -> Table:
    """Return the comparison with a design of the same size in another series."""
    v, total = contrast.other.count.formula.letters, contrast.other.parameters.total
    sizes = f"{v['L']} layers, width {v['d']:,}, {v['H']} heads, {v.get('K', v['H'])} KV heads"
    causes = contrast.difference.causes
    return Table(
        title=f"the same size like {contrast.like}: {sizes}; {total:,} parameters",
        columns=_CAUSES,
        rows=tuple(Row((x.label, x.delta, x.delta), level=1) for x in causes),
        legend=f"from {best.model.parameters.total:,} to {total:,}, by the method of llamath diff",
    )


def _budget(budget: TrainingBudget) -> Iterator[Part]:
    """Yield the training compute and the optima of the scaling laws."""
    law = budget.law
    yield Text(f"compute, by {law.name}", "bold", apart=True)
    for text in (
        f"{budget.tokens:,} tokens, {budget.per_parameter:.1f} per active parameter "
        f"({budget.parameters:,})",
        f"C = 6·N·D = {budget.flops:.3g} floating-point operations",
        f"{law.name}: {short_count(round(budget.optimal_tokens))} tokens are optimal for this "
        f"size, {short_count(round(budget.optimal_parameters))} parameters for this compute",
    ):
        yield Text(text, indent="  ")
    beyond = "; this size is an extrapolation" if law.extrapolates(budget.parameters) else ""
    yield Table(
        columns=_LAWS,
        rows=tuple(_law_cells(x, budget.parameters) for x in LAWS),
        legend=f"{law.name}: {law.says}; {law.source}; {law.trained}{beyond}",
    )


def _law_cells(name: str, parameters: int) -> tuple[Any, ...]:
    tokens = LAWS[name].tokens(parameters)
    return name, round(tokens), tokens / parameters, 6 * parameters * tokens
