"""The report of `same` on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.same.compared_side import SideFacts
from ....analysis.same.same_report import SameReport, WeightDifference
from ....utils.errors import safe
from ....utils.number_format import format_count, format_list, short_count
from ...table import bold, dim, fit_table, note_lines, wrap, wrap_hanging

_MAX_ROWS = 12
"""The most weights that are listed."""


def same_text(report: SameReport) -> str:
    """Format the verdict, the rounded types, the causes and the weights that differ."""
    lines = [bold(x) for x in wrap(report.answer, "")]
    lines += [
        dim(x)
        for side, letter in ((report.a, "A"), (report.b, "B"))
        for x in wrap_hanging(_side(side, letter), "", "   ")
    ]
    if report.rounded_types:
        rows: list[tuple[str, ...]] = [
            ("within rounding", "weights", "relative error", "of the bound")
        ]
        rows += [
            _rounded_row(x.dtype_a, x.dtype_b, x.weights, x.relative_error, x.share_of_bound)
            for x in report.rounded_types
        ]
        lines += ["", *fit_table(rows, right=(1, 2, 3), drop=(3, 2))]
    if report.causes:
        lines += ["", "likely causes"]
        lines += [
            line
            for x in report.causes[:_MAX_ROWS]
            for line in wrap_hanging(safe(x.message, 400), "  ", "    ")
        ]
        lines += _more(len(report.causes))
    different = [x for x in report.differences if x.verdict == "different"]
    if different:
        rows = [("weight", "differ", "of", "relative error", "cause")]
        rows += [_difference_row(x) for x in different[:_MAX_ROWS]]
        lines += ["", *fit_table(rows, right=(1, 2, 3), drop=((1, 2), 3)), *_more(len(different))]
    for letter, paths in (("A", report.only_in_a), ("B", report.only_in_b)):
        if paths:
            text = f"{format_count(len(paths), 'weight')} only in {letter}: {format_list(paths, 6)}"
            lines += ["", *wrap_hanging(text, "", "  ")]
    return "\n".join(
        [*lines, *(["", *note_lines([safe(x, 400) for x in report.notes])] if report.notes else [])]
    )


def _side(x: SideFacts, letter: str) -> str:
    dtypes = format_list(
        [f"{name} {share}" if len(x.dtypes) > 1 else name for name, share in _shares(x)], 3
    )
    merged = f"{x.adapter} merged with {safe(x.base)}: " if x.adapter else ""
    return (
        f"{letter}  {safe(x.path)}: {merged}{x.family}, {short_count(x.elements)}, "
        f"{x.format}, {x.names} names, {dtypes}"
    )


def _shares(x: SideFacts) -> Iterator[tuple[str, str]]:
    for name, n in x.dtypes.items():
        share = 100 * n / max(1, x.elements)
        yield name, f"{share:.0f} %" if share >= 1 else "< 1 %"


def _rounded_row(a: str, b: str, weights: int, error: float, share: float) -> tuple[str, ...]:
    return (
        f"{a} in A, {b} in B",
        f"{weights:,}",
        f"{error:.2g}",
        f"{share:.0%}" if share else "within half a step",
    )


def _difference_row(x: WeightDifference) -> tuple[str, ...]:
    if not x.elements:
        return x.path, "", "", "", x.cause
    rank = f", rank {x.rank}" if x.cause == "low rank" else ""
    return x.path, f"{x.differing:,}", f"{x.elements:,}", f"{x.relative_error:.2g}", x.cause + rank


def _more(count: int) -> list[str]:
    return (
        [dim(f"  and {count - _MAX_ROWS:,} more (--json lists all)")] if count > _MAX_ROWS else []
    )
