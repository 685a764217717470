"""Three or more models, each against the first: totals, and the causes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...analysis.diff.causes import CAUSE_TITLES, METHOD
from ...analysis.diff.model_diff import ModelDiff
from ...core.errors import safe
from ...core.number_format import format_percent, format_short_signed, format_signed
from ...model import Model
from ..csv_rows import format_table
from ..table import align, bold, dim, terminal_width, wrap

Row = tuple[str, ...]


def multi_diff_text(models: Sequence[Model], found: Sequence[ModelDiff]) -> str:
    """A table of totals, and one of causes in as many pieces as the terminal is narrow."""
    lines = [bold(x) for x in wrap(f"{len(models) - 1} models against {models[0].name}", "")]
    first, *rest = align(list(_totals(models, found)), right=(1, 2, 3, 4))
    lines += ["", bold(first), *rest]
    if any(x.causes for x in found):
        lines += ["", *_causes(models, found)]
        lines += [dim(x) for x in wrap(f"method: {METHOD}", "")]
    return "\n".join(lines)


def multi_diff_rows(models: Sequence[Model], found: Sequence[ModelDiff], form: str) -> Iterator[str]:
    """One row for each model: its parameters, the difference, and what each cause adds to it."""
    kinds = _kinds(found)
    header = ("model", "parameters", "difference", *(CAUSE_TITLES.get(x, x) for x in kinds))
    rows = [(safe(models[0].name), str(found[0].total[0]), "0", *("0" for _ in kinds))]
    rows += [
        (safe(x.name), str(y.total[1]), str(y.delta), *(str(_of(y, kind)) for kind in kinds))
        for x, y in zip(models[1:], found, strict=True)
    ]
    return format_table(header, rows, form)


def _totals(models: Sequence[Model], found: Sequence[ModelDiff]) -> Iterator[Row]:
    yield "model", "parameters", "difference", "", "layers"
    base = found[0].total[0]
    for x, y in zip(models, (None, *found), strict=True):
        n, delta = (y.total[1], y.delta) if y else (base, 0)
        share = format_percent(Fraction(delta, base or 1)).replace("-", "−") if y else ""
        rate = f"+{share}" if delta > 0 else share
        yield safe(x.name, 30), f"{n:,}", format_signed(delta) if y else "", rate, f"{int(x.tree.layers.n):,}"


def _causes(models: Sequence[Model], found: Sequence[ModelDiff]) -> Iterator[str]:
    """In full where two models fit, else in three digits, cut into pieces that fit."""
    kinds = _kinds(found)
    names = [CAUSE_TITLES.get(x, x) for x in kinds]
    room = terminal_width() - max(map(len, (*names, "difference")))
    write = (
        format_signed
        if (2 + max(len(format_signed(_of(x, k))) for x in found for k in kinds)) * len(found) <= room
        else format_short_signed
    )
    piece = len(found) if write is format_signed else max(room // 16, 1)
    for start in range(0, len(found), piece):
        some = range(start, min(start + piece, len(found)))
        rows: list[Row] = [("why", *(safe(models[i + 1].name, 40) if write is format_signed else _brief(models[i + 1].name) for i in some))]
        rows += [
            (name, *(write(_of(found[i], kind)) if _of(found[i], kind) else "" for i in some))
            for name, kind in zip(names, kinds, strict=True)
        ]
        rows.append(("difference", *(write(found[i].delta) for i in some)))
        first, *rest = align(rows, right=range(1, len(some) + 1))
        yield from (bold(first), *rest)
        if start + piece < len(found):
            yield ""


def _brief(name: str, most: int = 14) -> str:
    name = safe(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _kinds(found: Sequence[ModelDiff]) -> list[str]:
    """Every kind of cause there is, in the order of the method."""
    there = {x.kind for y in found for x in y.causes}
    return [x for x in CAUSE_TITLES if x in there] + sorted(there - CAUSE_TITLES.keys())


def _of(found: ModelDiff, kind: str) -> int:
    return sum(x.delta for x in found.causes if x.kind == kind)
