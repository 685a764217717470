"""Explanations of a count on a terminal and for programs: ranked, each a sum of terms with their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2
from typing import Any

from ...analysis.explain import MARGIN, WINDOW, Candidate, Explanation
from ...core.errors import safe
from ...core.number_format import format_signed, short_count
from ..table import bold, dim, terminal_width, wrap

NAMES = 6
"""So many other models of the same shape are listed."""


def explain_text(found: Explanation) -> str:
    """The whole report."""
    lines = list(_head(found))
    for i, x in enumerate(found.candidates, 1):
        lines += ["", *_candidate(found, x, i)]
    return "\n".join([*lines, "", *_foot(found)])


def explain_json(found: Explanation) -> dict[str, Any]:
    """What `llamath explain --json` prints."""
    return {
        "number": found.number,
        "candidates": [
            {
                "exact": x.exact,
                "residue": x.residue,
                "summary": x.summary,
                "terms": [{"what": y.what, "value": y.value, "formula": y.formula} for y in x.terms],
            }
            for x in found.candidates
        ],
    }


def _head(found: Explanation) -> Iterator[str]:
    if found.name:
        low, high = found.bounds
        carriers = any(low <= x.value < high for x in found.candidates)
        said = "what can carry this name" if carriers else "nothing that was tried goes by it" + "; nearest" * bool(found.candidates)
        yield from map(bold, wrap(f"{safe(found.name, 40)}, {low:,} to {high - 1:,}: {said}", indent=""))
        return
    exact = any(x.exact for x in found.candidates)
    said = "" if exact else ": nothing fits exactly" + "; near misses" * bool(found.candidates)
    yield from map(bold, wrap(f"{found.number:,} ({short_count(found.number)}){said}", indent=""))


def _candidate(found: Explanation, x: Candidate, i: int) -> Iterator[str]:
    """A sum: the values flush right, what each is beside it, its formula below."""
    total = f"{x.value:,}" if found.name or not x.exact else f"{found.number:,}"
    values = [f"{x.terms[0].value:,}", *(format_signed(y.value) for y in x.terms[1:])]
    wide = max(map(len, (total, *values)))
    gap, start = " " * (wide + 6), f"{i:>2}. "
    for j, (value, y) in enumerate(zip(values, x.terms, strict=True)):
        first, *rest = wrap(y.what, indent="", width=terminal_width() - len(gap))
        yield f"{start if j == 0 else '    '}{value:>{wide}}  {bold(first) if j == 0 else first}"
        yield from (gap + line for line in rest)
        if formula := _formula(x, j, i):
            yield from (dim(gap + line) for line in wrap(formula, indent="", width=terminal_width() - len(gap)))
    if len(values) > 1 or not x.exact:
        yield f"    {total:>{wide}}  {_verdict(found, x)}".rstrip()
    if x.also:
        more = f" and {len(x.also) - NAMES} more" if len(x.also) > NAMES else ""
        names = ", ".join(safe(name, 60) for name in x.also[:NAMES])
        yield from (dim(gap + line) for line in wrap(f"the same with {names}{more}", indent="", width=terminal_width() - len(gap)))


def _formula(x: Candidate, term: int, place: int) -> str:
    """A term's formula; that of a whole model only in the first candidate."""
    return x.terms[term].formula if term or place == 1 else ""


def _verdict(found: Explanation, x: Candidate) -> str:
    if found.name:
        low, high = found.bounds
        if low <= x.value < high:
            return f"{'rounds' if x.value < 2 * found.number - low else 'cut'} to {safe(found.name, 40)}"
        return f"near miss: {format_signed(x.value - found.number)} from it"
    return "exactly" if x.exact else f"near miss: {format_signed(x.residue)} is left over"


def _foot(found: Explanation) -> Iterator[str]:
    """What was looked at, and what counts as found."""
    where = f"from {safe(found.like, 60)}" if found.like else f"from {found.models} presets"
    lines = []
    if found.more:
        lines.append(f"{found.more:,} more way{'s' if found.more > 1 else ''} to it, less simple than these; --all lists them")
    if found.name:
        lines.append(f"tried {where}: what programs count differently, storage, and combinations of two")
    else:
        lines.append(
            f"tried {where}: combinations of up to three changes; claimed is what takes at least {MARGIN:g} bits less to say than the "
            f"number itself, which has {log2(found.number):.0f}, and listed what is within {WINDOW:g} bits of the simplest"
        )
    for line in lines:
        yield from map(dim, wrap(line, indent=""))
