"""Explanations of a count as text: ranked, each a sum of terms with their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from ...analysis.explain import LISTED_BITS, MIN_BITS_SAVED, Candidate, Explanation
from ...utils.errors import safe
from ...utils.number_format import format_signed, short_count
from ..table import bold, dim, terminal_width, wrap

_MAX_NAMES = 6
"""Other models of the same shape are listed up to this number."""


def explain_text(report: Explanation) -> str:
    """Return the report as text."""
    lines = list(_head(report))
    for i, x in enumerate(report.candidates, 1):
        lines += ["", *_candidate(report, x, i)]
    return "\n".join([*lines, "", *_footer(report)])


def _head(report: Explanation) -> Iterator[str]:
    if report.name:
        low, high = report.bounds
        verdict = (
            "models of this size"
            if report.explained
            else "no model of this size" + ("; nearest") * bool(report.candidates)
        )
        yield from map(
            bold, wrap(f"{safe(report.name, 40)}, {low:,} to {high - 1:,}: {verdict}", indent="")
        )
        return
    if report.explained:
        best = report.candidates[0]
        verdict = f": {best.likelihood}" + (
            f", {best.confidence:.0%}" if best.confidence is not None else ""
        )
    else:
        verdict = ": no exact explanation" + "; near misses" * bool(report.candidates)
    yield from map(
        bold, wrap(f"{report.number:,} ({short_count(report.number)}){verdict}", indent="")
    )


def _candidate(report: Explanation, x: Candidate, i: int) -> Iterator[str]:
    """Yield one explanation as a sum: values flush right, descriptions next to them, formulas
    below.
    """
    total = f"{x.value:,}" if report.name or not x.exact else f"{report.number:,}"
    values = [f"{x.terms[0].value:,}", *(format_signed(y.value) for y in x.terms[1:])]
    width = max(map(len, (total, *values)))
    gap, start = " " * (width + 6), f"{i:>2}. "
    for j, (value, y) in enumerate(zip(values, x.terms, strict=True)):
        first, *rest = wrap(y.what, indent="", width=terminal_width() - len(gap))
        yield f"{start if j == 0 else '    '}{value:>{width}}  {bold(first) if j == 0 else first}"
        yield from (gap + line for line in rest)
        if formula := _formula(x, j, i):
            yield from (
                dim(gap + line)
                for line in wrap(formula, indent="", width=terminal_width() - len(gap))
            )
    if len(values) > 1 or not x.exact:
        yield f"    {total:>{width}}  {_verdict(report, x)}".rstrip()
    if x.also:
        more = f" and {len(x.also) - _MAX_NAMES} more" if len(x.also) > _MAX_NAMES else ""
        names = ", ".join(safe(name, 60) for name in x.also[:_MAX_NAMES])
        yield from (
            dim(gap + line)
            for line in wrap(
                f"also fits {names}{more}", indent="", width=terminal_width() - len(gap)
            )
        )


def _formula(x: Candidate, term: int, place: int) -> str:
    """Return a term's formula; the formula of a whole model is shown only in the first
    candidate.
    """
    return x.terms[term].formula if term or place == 1 else ""


def _verdict(report: Explanation, x: Candidate) -> str:
    if report.name:
        low, high = report.bounds
        if low <= x.value < high:
            return (
                f"{'rounds' if x.value < 2 * report.number - low else 'cut'} to "
                f"{safe(report.name, 40)}"
            )
        return f"near miss: off by {format_signed(x.value - report.number)}"
    return (
        f"exactly ({x.likelihood})"
        if x.exact
        else (f"near miss: {format_signed(x.residue)} unexplained")
    )


def _footer(report: Explanation) -> Iterator[str]:
    """The search space, and the threshold for an explanation."""
    where = f"from {safe(report.like, 60)}" if report.like else f"from {report.models} presets"
    lines = []
    if report.more:
        lines.append(
            f"{report.more:,} more, less likely "
            f"explanation{'s' if report.more > 1 else ''}; --all lists them"
        )
    if report.name:
        lines.append(
            f"tried {where}: counting conventions, packed weights, and combinations of two"
        )
    else:
        lines.append(
            f"tried {where}: combinations of up to three changes. An explanation counts if it is "
            f"at least {MIN_BITS_SAVED:g} bits shorter "
            f"than the number itself ({log2(report.number):.0f} bits); those within "
            f"{LISTED_BITS:g} bits of the shortest are listed"
        )
    for line in lines:
        yield from map(dim, wrap(line, indent=""))
