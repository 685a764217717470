"""The difference of two models on a terminal: why, matrix by matrix, in the configuration, and what is the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...analysis.diff.causes import METHOD
from ...analysis.diff.model_diff import ConfigDifference, ModelDiff, WeightEntry, WeightPair
from ...core.errors import safe
from ...core.number_format import format_percent, format_signed, short_count
from ...model import Model
from ..table import align, bold, dim, terminal_width, wrap
from .cause_text import cause_label, cause_weights, short_path
from .config_text import format_value
from .waterfall_text import MIN_WATERFALL_WIDTH, axis, waterfall_bars

LONGEST = 32
"""A dotted key longer than this is called by its last part."""


def diff_text(a: Model, b: Model, found: ModelDiff) -> str:
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
        lines += [dim(x) for x in wrap(f"method: {METHOD}", indent="")]
    return "\n".join([*lines, *_notes(a, b)])


def _head(a: Model, b: Model, found: ModelDiff) -> Iterator[str]:
    share = f", {_rate(found)}" if found.total[0] and found.delta else ""
    what = f"{format_signed(found.delta)} parameters" if found.delta else f"{found.total[0]:,} parameters both"
    sizes = f" ({short_count(found.total[0])} → {short_count(found.total[1])}{share})" if found.delta else ""
    yield from (bold(x) for x in wrap(f"{safe(a.name)} → {safe(b.name)}: {what}{sizes}", ""))
    families = a.family.name if a.family.name == b.family.name else f"{a.family.name} → {b.family.name}"
    for line in (f"{families} family; from {a.source}", f"to {b.source}"):
        yield from map(dim, wrap(line, ""))


def _rate(found: ModelDiff) -> str:
    return ("+" if found.delta > 0 else "") + format_percent(Fraction(found.delta, found.total[0])).replace("-", "−")


def _why(a: Model, b: Model, found: ModelDiff) -> Iterator[str]:
    """The waterfall, with the place of each cause below it."""
    deltas = [x.delta for x in found.causes]
    numbers = [f"{found.total[0]:,}", *map(format_signed, deltas), f"{found.total[1]:,}"]
    names = [safe(a.name, 30), *(cause_label(x) for x in found.causes), safe(b.name, 30)]
    wide, right = max(map(len, names)), max(map(len, numbers))
    wide = min(wide, max(terminal_width() - right - MIN_WATERFALL_WIDTH - 4, 24))
    width = terminal_width() - wide - right - 4
    bars = waterfall_bars(found.total[0], deltas, width) if width >= MIN_WATERFALL_WIDTH else [""] * len(names)
    places = ["", *(cause_weights(x) for x in found.causes), ""]
    for name, number, bar, place in zip(names, numbers, bars, places, strict=True):
        *first, last = wrap(name, "", wide)
        yield from first
        yield f"{last:{wide}}  {number:>{right}}  {bar}".rstrip()
        yield from (dim(x) for x in (wrap(place, "    ") if place else ()))
    if note := axis(found.total[0], deltas):
        yield dim(f"≈ {note}")


def _matrices(a: Model, b: Model, found: ModelDiff) -> list[str]:
    rows = [("weight", safe(a.name, 14), safe(b.name, 14), "×", "difference"), *_rows(found.weights)]
    for gap in (2, 1):
        lines = align(rows, right=(1, 2, 3, 4), gap=gap)
        if max(map(len, lines)) <= terminal_width():
            break
    return [bold("matrix by matrix"), dim(lines[0]), *lines[1:]]


def _rows(pairs: Sequence[WeightPair]) -> Iterator[tuple[str, ...]]:
    inside = False
    for x in pairs:
        layered = x.path.startswith("layers.{l}.")
        if layered and not inside:
            yield ("layers", "", "", "", format_signed(sum(y.delta for y in pairs if y.path.startswith("layers.{l}."))))
        inside = layered
        yield ("  " * layered + short_path(x.path), _shape(x.a), _shape(x.b), _copies(x), format_signed(x.delta))


def _shape(entry: WeightEntry | None) -> str:
    return "–" if entry is None else "tied" if entry.tied else "×".join(map(str, entry.shape))


def _copies(pair: WeightPair) -> str:
    ours, theirs = (f"{x.copies}" if x else "0" for x in (pair.a, pair.b))
    return ours if ours == theirs else theirs if ours == "0" else ours if theirs == "0" else f"{ours}→{theirs}"


def _config(a: Model, b: Model, settings: Sequence[ConfigDifference]) -> Iterator[str]:
    """What the configurations say differently; what moves no weight is marked with what it moves."""
    keys = [safe(x.key if len(x.key) <= LONGEST else x.key.rpartition(".")[2], 60) for x in settings]
    room = max((terminal_width() - max(map(len, keys)) - 14) // 2, 12)
    rows = [("configuration", safe(a.name, room), safe(b.name, room), "moves")]
    rows += [(key, format_setting(x, 0, room), format_setting(x, 1, room), x.moves) for key, x in zip(keys, settings, strict=True)]
    first, *rest = align(rows)
    yield bold(first)
    yield from rest
    if any(any(x.absent) for x in settings):
        yield dim("*: the key is absent or null, and this is the family's default")


def format_setting(setting: ConfigDifference, side: int, room: int = 60) -> str:
    """What one side says: a dash where its family has no such key, a star after a default."""
    if not setting.known[side]:
        return "–"
    found = (setting.a, setting.b)[side]
    mark = "*" if setting.absent[side] else ""
    return _said(found, room - len(mark)) + mark


def _said(found: object, room: int) -> str:
    if isinstance(found, (int, float)) and not isinstance(found, bool) and abs(found) < 10**15 and found == int(found):
        return f"{int(found):,}"
    return "none" if found is None else format_value(found, room)


def _same(found: ModelDiff) -> Iterator[str]:
    """What does not differ, in one line."""
    if not found.weights and not found.config:
        yield f"nothing differs: {len(found.same)} weights, {len(found.agreed)} keys of the configuration"
        return
    keys = f"{len(found.agreed)} config keys"
    names = [short_path(x) for x in found.same]
    if not names:
        yield f"the same: no weight, {keys}"
        return
    tail, kept = f" ({short_count(found.shared)}), {keys}", list(names)
    while kept and len(f"the same: {_list(kept, len(names))}{tail}") > terminal_width():
        kept.pop()
    yield f"the same: {_list(kept, len(names))}{tail}"


def _list(names: list[str], whole: int) -> str:
    more = whole - len(names)
    return ", ".join(names) + (f" and {more} more" if more and names else f"{more} weights" if more else "")


def _notes(a: Model, b: Model) -> Iterator[str]:
    for note in dict.fromkeys((*a.notes, *b.notes)):
        yield from wrap(f"note: {note}", indent="")
