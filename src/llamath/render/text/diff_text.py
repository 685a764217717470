"""The difference of two models on a terminal: why, matrix by matrix, in the configuration, and what is the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...analysis.diff.causes import METHOD
from ...analysis.diff.model_diff import Difference, Entry, Pair, Setting
from ...core.errors import safe
from ...model import Model
from ..numbers import everyday, percent
from ..table import aligned, bold, columns, dim, wrapped
from .cause_text import label, signed, weight, where
from .config_text import shown
from .waterfall_text import LEAST, axis, waterfall

LONGEST = 32
"""A dotted key longer than this is called by its last part."""


def diff_text(a: Model, b: Model, found: Difference) -> str:
    """The whole report."""
    lines = list(_head(a, b, found))
    if found.causes:
        lines += ["", bold("why"), *_why(a, b, found)]
    if found.weights:
        lines += ["", *_matrices(a, b, found)]
    if found.config:
        lines += ["", *_config(a, b, found.config)]
    lines += ["", *_same(found)]
    if found.causes:
        lines += [dim(x) for x in wrapped(f"method: {METHOD}", indent="")]
    return "\n".join([*lines, *_notes(a, b)])


def _head(a: Model, b: Model, found: Difference) -> Iterator[str]:
    share = f", {_rate(found)}" if found.total[0] and found.delta else ""
    what = f"{signed(found.delta)} parameters" if found.delta else f"{found.total[0]:,} parameters both"
    sizes = f" ({everyday(found.total[0])} → {everyday(found.total[1])}{share})" if found.delta else ""
    yield from (bold(x) for x in wrapped(f"{safe(a.name)} → {safe(b.name)}: {what}{sizes}", ""))
    families = a.family.name if a.family.name == b.family.name else f"{a.family.name} → {b.family.name}"
    for line in (f"{families} family; from {a.source}", f"to {b.source}"):
        yield from map(dim, wrapped(line, ""))


def _rate(found: Difference) -> str:
    return ("+" if found.delta > 0 else "") + percent(Fraction(found.delta, found.total[0])).replace("-", "−")


def _why(a: Model, b: Model, found: Difference) -> Iterator[str]:
    """The waterfall, with the place of each cause below it."""
    deltas = [x.delta for x in found.causes]
    numbers = [f"{found.total[0]:,}", *map(signed, deltas), f"{found.total[1]:,}"]
    names = [safe(a.name, 30), *(label(x) for x in found.causes), safe(b.name, 30)]
    wide, right = max(map(len, names)), max(map(len, numbers))
    wide = min(wide, max(columns() - right - LEAST - 4, 24))
    width = columns() - wide - right - 4
    bars = waterfall(found.total[0], deltas, width) if width >= LEAST else [""] * len(names)
    places = ["", *(where(x) for x in found.causes), ""]
    for name, number, bar, place in zip(names, numbers, bars, places, strict=True):
        *first, last = wrapped(name, "", wide)
        yield from first
        yield f"{last:{wide}}  {number:>{right}}  {bar}".rstrip()
        yield from (dim(x) for x in (wrapped(place, "    ") if place else ()))
    if note := axis(found.total[0], deltas):
        yield dim(f"≈ {note}")


def _matrices(a: Model, b: Model, found: Difference) -> list[str]:
    rows = [("weight", safe(a.name, 14), safe(b.name, 14), "×", "difference"), *_rows(found.weights)]
    for gap in (2, 1):
        lines = aligned(rows, right=(1, 2, 3, 4), gap=gap)
        if max(map(len, lines)) <= columns():
            break
    return [bold("matrix by matrix"), dim(lines[0]), *lines[1:]]


def _rows(pairs: Sequence[Pair]) -> Iterator[tuple[str, ...]]:
    inside = False
    for x in pairs:
        layered = x.path.startswith("layers.{l}.")
        if layered and not inside:
            yield ("layers", "", "", "", signed(sum(y.delta for y in pairs if y.path.startswith("layers.{l}."))))
        inside = layered
        yield ("  " * layered + weight(x.path), _shape(x.a), _shape(x.b), _copies(x), signed(x.delta))


def _shape(entry: Entry | None) -> str:
    return "–" if entry is None else "tied" if entry.tied else "×".join(map(str, entry.shape))


def _copies(pair: Pair) -> str:
    ours, theirs = (f"{x.copies}" if x else "0" for x in (pair.a, pair.b))
    return ours if ours == theirs else theirs if ours == "0" else ours if theirs == "0" else f"{ours}→{theirs}"


def _config(a: Model, b: Model, settings: Sequence[Setting]) -> Iterator[str]:
    """What the configurations say differently; what moves no weight is marked with what it moves."""
    keys = [safe(x.key if len(x.key) <= LONGEST else x.key.rpartition(".")[2], 60) for x in settings]
    room = max((columns() - max(map(len, keys)) - 14) // 2, 12)
    rows = [("configuration", safe(a.name, room), safe(b.name, room), "moves")]
    rows += [(key, value(x, 0, room), value(x, 1, room), x.group) for key, x in zip(keys, settings, strict=True)]
    first, *rest = aligned(rows)
    yield bold(first)
    yield from rest
    if any(any(x.absent) for x in settings):
        yield dim("*: the key is absent or null, and this is the family's default")


def value(setting: Setting, side: int, room: int = 60) -> str:
    """What one side says: a dash where its family has no such key, a star after a default."""
    if not setting.known[side]:
        return "–"
    found = (setting.a, setting.b)[side]
    mark = "*" if setting.absent[side] else ""
    return _said(found, room - len(mark)) + mark


def _said(found: object, room: int) -> str:
    if isinstance(found, (int, float)) and not isinstance(found, bool) and abs(found) < 10**15 and found == int(found):
        return f"{int(found):,}"
    return "none" if found is None else shown(found, room)


def _same(found: Difference) -> Iterator[str]:
    """What does not differ, in one line."""
    if not found.weights and not found.config:
        yield f"nothing differs: {len(found.same)} weights, {len(found.agreed)} keys of the configuration"
        return
    keys = f"{len(found.agreed)} config keys"
    names = [weight(x) for x in found.same]
    if not names:
        yield f"the same: no weight, {keys}"
        return
    tail, kept = f" ({everyday(found.shared)}), {keys}", list(names)
    while kept and len(f"the same: {_list(kept, len(names))}{tail}") > columns():
        kept.pop()
    yield f"the same: {_list(kept, len(names))}{tail}"


def _list(names: list[str], whole: int) -> str:
    more = whole - len(names)
    return ", ".join(names) + (f" and {more} more" if more and names else f"{more} weights" if more else "")


def _notes(a: Model, b: Model) -> Iterator[str]:
    for note in dict.fromkeys((*a.notes, *b.notes)):
        yield from wrapped(f"note: {note}", indent="")
