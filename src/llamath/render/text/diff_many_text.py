"""Three or more models, each against the first: totals, and the causes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...analysis.diff.causes import METHOD, TITLES
from ...analysis.diff.model_diff import Difference
from ...core.errors import safe
from ...model import Model
from ..csv_rows import table
from ..numbers import percent
from ..table import aligned, bold, columns, dim, wrapped
from .cause_text import short, signed

Row = tuple[str, ...]


def many_text(models: Sequence[Model], found: Sequence[Difference]) -> str:
    """A table of totals, and one of causes in as many pieces as the terminal is narrow."""
    lines = [bold(x) for x in wrapped(f"{len(models) - 1} models against {models[0].name}", "")]
    first, *rest = aligned(list(_totals(models, found)), right=(1, 2, 3, 4))
    lines += ["", bold(first), *rest]
    if any(x.causes for x in found):
        lines += ["", *_causes(models, found)]
        lines += [dim(x) for x in wrapped(f"method: {METHOD}", "")]
    return "\n".join(lines)


def many_rows(models: Sequence[Model], found: Sequence[Difference], form: str) -> Iterator[str]:
    """One row for each model: its parameters, the difference, and what each cause adds to it."""
    kinds = _kinds(found)
    header = ("model", "parameters", "difference", *(TITLES.get(x, x) for x in kinds))
    rows = [(safe(models[0].name), str(found[0].total[0]), "0", *("0" for _ in kinds))]
    rows += [
        (safe(x.name), str(y.total[1]), str(y.delta), *(str(_of(y, kind)) for kind in kinds))
        for x, y in zip(models[1:], found, strict=True)
    ]
    return table(header, rows, form)


def _totals(models: Sequence[Model], found: Sequence[Difference]) -> Iterator[Row]:
    yield "model", "parameters", "difference", "", "layers"
    base = found[0].total[0]
    for x, y in zip(models, (None, *found), strict=True):
        n, delta = (y.total[1], y.delta) if y else (base, 0)
        share = percent(Fraction(delta, base or 1)).replace("-", "−") if y else ""
        rate = f"+{share}" if delta > 0 else share
        yield safe(x.name, 30), f"{n:,}", signed(delta) if y else "", rate, f"{int(x.tree.layers.n):,}"


def _causes(models: Sequence[Model], found: Sequence[Difference]) -> Iterator[str]:
    """In full where two models fit, else in three digits, cut into pieces that fit."""
    kinds = _kinds(found)
    names = [TITLES.get(x, x) for x in kinds]
    room = columns() - max(map(len, (*names, "difference")))
    write = signed if (2 + max(len(signed(_of(x, k))) for x in found for k in kinds)) * len(found) <= room else short
    piece = len(found) if write is signed else max(room // 16, 1)
    for start in range(0, len(found), piece):
        some = range(start, min(start + piece, len(found)))
        rows: list[Row] = [("why", *(safe(models[i + 1].name, 40) if write is signed else _brief(models[i + 1].name) for i in some))]
        rows += [
            (name, *(write(_of(found[i], kind)) if _of(found[i], kind) else "" for i in some))
            for name, kind in zip(names, kinds, strict=True)
        ]
        rows.append(("difference", *(write(found[i].delta) for i in some)))
        first, *rest = aligned(rows, right=range(1, len(some) + 1))
        yield from (bold(first), *rest)
        if start + piece < len(found):
            yield ""


def _brief(name: str, most: int = 14) -> str:
    name = safe(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _kinds(found: Sequence[Difference]) -> list[str]:
    """Every kind of cause there is, in the order of the method."""
    there = {x.kind for y in found for x in y.causes}
    return [x for x in TITLES if x in there] + sorted(there - TITLES.keys())


def _of(found: Difference, kind: str) -> int:
    return sum(x.delta for x in found.causes if x.kind == kind)
