"""The difference of two models, or of several from the first, on a terminal, and as CSV and
Markdown tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate

from ...analysis.diff.causes import CAUSE_TITLES, METHOD, short_path
from ...analysis.diff.model_diff import (
    ConfigDifference,
    DiffReport,
    MultiDiffReport,
    WeightEntry,
    WeightPair,
)
from ...analysis.diff.storage_diff import (
    ModuleFormats,
    StorageDifference,
    StoredSize,
    format_layers,
    join_formats,
)
from ...model import Model
from ...utils.errors import safe
from ...utils.number_format import (
    format_count,
    format_percent,
    format_short_signed,
    format_signed,
    short_count,
)
from ..csv_rows import format_table
from ..table import bold, dim, fit_table, note_lines, terminal_width, wrap
from .config_text import format_value

_MAX_KEY = 32
"""A longer dotted key is shown by its last part."""
_MIN_WATERFALL_WIDTH = 12
"""A narrower chart is left out."""
_MAX_NAME = 30
_SHORT_NAME = 14
_WEIGHT_HEADER = (
    "group",
    "weight",
    "a shape",
    "b shape",
    "a copies",
    "b copies",
    "a",
    "b",
    "difference",
)


def diff_text(report: DiffReport) -> str:
    """Return the whole report: causes, weights, config keys, and the equal parts."""
    lines = list(_head(report))
    if report.causes:
        lines += ["", bold("causes"), *_causes(report)]
    if report.weights:
        lines += ["", *_weights(report)]
    if report.config:
        lines += ["", *_config(report)]
    if report.storage is not None:
        lines += ["", *_storage(report.storage, report)]
    lines += ["", *_equal_parts(report)]
    if report.causes:
        lines += [dim(x) for x in wrap(f"method: {METHOD}", indent="")]
    return "\n".join([*lines, *note_lines(report.notes)])


def _head(report: DiffReport) -> Iterator[str]:
    a, b, total = report.a, report.b, report.total
    what = (
        f"{format_signed(report.delta)} parameters"
        if report.delta
        else (f"{total.a:,} parameters both")
    )
    share = f", {_format_share(report)}" if total.a else ""
    sizes = f" ({short_count(total.a)} → {short_count(total.b)}{share})" if report.delta else ""
    yield from (bold(x) for x in wrap(f"{safe(a.name)} → {safe(b.name)}: {what}{sizes}", ""))
    families = (
        a.family.name if a.family.name == b.family.name else (f"{a.family.name} → {b.family.name}")
    )
    kind = "" if a.claim or b.claim else f"{families} family; "
    for line in (f"{kind}from {a.source}{_claim(a)}", f"to {b.source}{_claim(b)}"):
        yield from map(dim, wrap(line, ""))


def _claim(model: Model) -> str:
    return f", {model.claim}" if model.claim else ""


def _format_share(report: DiffReport) -> str:
    share = format_percent(Fraction(report.delta, report.total.a or 1)).replace("-", "−")
    return f"+{share}" if report.delta > 0 else share


def _causes(report: DiffReport) -> Iterator[str]:
    """Yield the waterfall chart, with the changed weights below each cause."""
    deltas = [x.delta for x in report.causes]
    numbers = [f"{report.total.a:,}", *map(format_signed, deltas), f"{report.total.b:,}"]
    names = [
        safe(report.a.name, _MAX_NAME),
        *(x.label for x in report.causes),
        safe(report.b.name, _MAX_NAME),
    ]
    number_width = max(map(len, numbers))
    name_width = min(
        max(map(len, names)), max(terminal_width() - number_width - _MIN_WATERFALL_WIDTH - 4, 24)
    )
    width = terminal_width() - name_width - number_width - 4
    bars = (
        _waterfall(report.total.a, deltas, width)
        if width >= _MIN_WATERFALL_WIDTH
        else [""] * len(names)
    )
    places = ["", *(x.where for x in report.causes), ""]
    for name, number, bar, place in zip(names, numbers, bars, places, strict=True):
        *first, last = wrap(name, "", name_width)
        yield from first
        yield f"{last:{name_width}}  {number:>{number_width}}  {bar}".rstrip()
        yield from (dim(x) for x in (wrap(place, "    ") if place else ()))
    low, high = waterfall_bounds(report.total.a, deltas)
    if low:
        yield dim(f"≈ bars from {short_count(low)} to {short_count(high)}")


def waterfall_bounds(start: int, deltas: Sequence[int]) -> tuple[int, int]:
    """Return the ends of the axis: it starts at 0, or below the lowest level if all changes are
    near the top.
    """
    levels = list(accumulate(deltas, initial=start))
    low, high = min(levels), max(levels)
    margin = (high - low) // 8
    return (low - margin if low - margin > high // 3 else 0), high


def _waterfall(start: int, deltas: Sequence[int], width: int) -> list[str]:
    """Return a bar for the first total, one for each cause, one for the last total."""
    low, high = waterfall_bounds(start, deltas)

    def at(n: int) -> int:
        return round((n - low) * width / ((high - low) or 1))

    level, lines = start, [_total_bar(at(start), low > 0)]
    for delta in deltas:
        lines.append(_change_bar(at(level), at(level + delta), delta > 0, width))
        level += delta
    return [*lines, _total_bar(at(level), low > 0)]


def _total_bar(end: int, broken: bool) -> str:
    return (("≈" if broken else "█") + "█" * (end - 1)) if end > 0 else "▏"


def _change_bar(start: int, end: int, up: bool, width: int) -> str:
    first, last = min(start, end), max(start, end)
    if first == last:
        first, last = (first, first + 1) if first < width else (first - 1, first)
    length = last - first
    return " " * first + ("━" * (length - 1) + ">" if up else "<" + "━" * (length - 1))


def _weights(report: DiffReport) -> list[str]:
    names = (_cut(report.a.name), _cut(report.b.name))
    lines = fit_table(
        [("weight", *names, "×", "difference"), *_weight_rows(report.weights)],
        right=(1, 2, 3, 4),
        drop=(3,),
    )
    return [bold("weights"), dim(lines[0]), *lines[1:]]


def _weight_rows(pairs: Sequence[WeightPair]) -> Iterator[tuple[str, ...]]:
    inside = False
    for x in pairs:
        in_layers = x.path.startswith("layers.{l}.")
        if in_layers and not inside:
            yield (
                "layers",
                "",
                "",
                "",
                format_signed(sum(y.delta for y in pairs if y.path.startswith("layers.{l}."))),
            )
        inside = in_layers
        yield (
            "  " * in_layers + short_path(x.path),
            _format_entry(x.a),
            _format_entry(x.b),
            _format_copies(x),
            format_signed(x.delta),
        )


def _format_entry(entry: WeightEntry | None) -> str:
    return "–" if entry is None else "tied" if entry.tied else "×".join(map(str, entry.shape))


def _format_copies(pair: WeightPair) -> str:
    ours, theirs = map(str, pair.copies)
    return (
        ours
        if ours == theirs
        else theirs
        if ours == "0"
        else ours
        if theirs == "0"
        else f"{ours}→{theirs}"
    )


def _config(report: DiffReport) -> Iterator[str]:
    """Yield the config keys that differ, each with its effect."""
    keys = [
        safe(x.key if len(x.key) <= _MAX_KEY else x.key.rpartition(".")[2], 60)
        for x in report.config
    ]
    room = max((terminal_width() - max(map(len, keys)) - 14) // 2, 12)
    rows = [("configuration", _cut(report.a.name, room), _cut(report.b.name, room), "changes")]
    rows += [
        (key, format_setting(x, 0, room), format_setting(x, 1, room), x.moves)
        for key, x in zip(keys, report.config, strict=True)
    ]
    header, *lines = fit_table(rows, drop=(3,))
    yield bold(header)
    yield from lines
    if any(any(x.default) for x in report.config):
        yield from map(dim, wrap("*: the key is absent or null; this is the family's default", ""))


def format_setting(setting: ConfigDifference, side: int, room: int = 60) -> str:
    """Return one side's value: a dash if its family has no such key, with a star if it is the
    default.
    """
    if not setting.known[side]:
        return "–"
    mark = "*" if setting.default[side] else ""
    return _format_config_value((setting.a, setting.b)[side], room - len(mark)) + mark


def _format_config_value(value: object, room: int) -> str:
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 10**15
        and value == int(value)
    ):
        return f"{int(value):,}"
    return "none" if value is None else format_value(value, room)


def _storage(storage: StorageDifference, report: DiffReport) -> Iterator[str]:
    """Yield the bytes and bits per weight of each group, and the modules that two recipes store
    differently.
    """
    rows: list[tuple[str, ...]] = [
        ("stored", _cut(report.a.name), "bits", _cut(report.b.name), "bits", "bytes")
    ]
    for x in storage.groups:
        sides = (
            cell
            for side in (x.a, x.b)
            for cell in (join_formats(side.formats[:2]) if side.bytes else "–", _format_bits(side))
        )
        rows.append((x.group, *sides, format_signed(x.delta) if x.delta else ""))
    totals = (
        cell for side in (storage.a, storage.b) for cell in (f"{side.bytes:,}", _format_bits(side))
    )
    rows.append(("total, bytes", *totals, format_signed(storage.delta) if storage.delta else ""))
    header, *lines = fit_table(rows, right=(2, 4, 5), drop=(5,))
    yield bold(header)
    yield from lines
    if storage.modules:
        yield ""
        yield bold("modules that are stored differently")
        alike: dict[tuple[tuple[int, ...], str], list[str]] = {}
        for module in storage.modules:
            key = module.layers, " → ".join(_sides_of(module))
            alike.setdefault(key, []).append(safe(module.module.rpartition("{l}.")[2], 80))
        for (layers, change), names in list(alike.items())[:_MAX_MODULES]:
            where = (
                f" in layer{'s' if len(layers) > 1 else ''} {format_layers(layers)}"
                if layers
                else ""
            )
            yield from wrap(f"{', '.join(names)}{safe(where, 200)}: {change}", indent="  ")
        if len(alike) > _MAX_MODULES:
            yield f"  and {len(alike) - _MAX_MODULES:,} more (--json lists all)"


_MAX_MODULES = 24
"""The most modules that are listed."""


def _sides_of(x: ModuleFormats) -> Iterator[str]:
    for name, reason in ((x.a, x.reason_a), (x.b, x.reason_b)):
        yield f"{name} ({safe(reason, 60)})" if reason else name


def _format_bits(size: StoredSize) -> str:
    bits = size.bits_per_weight
    return f"{float(bits):.3f}" if bits is not None else ""


def _equal_parts(report: DiffReport) -> Iterator[str]:
    """Summarize the equal weights in one line."""
    same = report.same
    keys = format_count(len(same.config), "config key")
    if (
        not report.weights
        and not report.config
        and (report.storage is None or not report.storage.delta)
    ):
        yield f"nothing differs: {format_count(len(same.weights), 'weight')}, {keys}"
        return
    names = [short_path(x) for x in same.weights]
    if not names:
        yield f"equal: no weight, {keys}"
        return
    tail, shown = f" ({short_count(same.parameters)}), {keys}", list(names)
    while shown and len(f"equal: {_first_names(shown, len(names))}{tail}") > terminal_width():
        shown.pop()
    yield f"equal: {_first_names(shown, len(names))}{tail}"


def _first_names(names: list[str], total: int) -> str:
    more = total - len(names)
    return ", ".join(names) + (
        f" and {more} more" if more and names else format_count(more, "weight") if more else ""
    )


def multi_diff_text(report: MultiDiffReport) -> str:
    """Return a table of totals, and one of causes in as many pieces as the terminal is narrow."""
    lines = [
        bold(x)
        for x in wrap(
            f"{format_count(len(report.differences), 'model')} compared with {report.against}", ""
        )
    ]
    header, *rest = fit_table(list(_total_rows(report)), right=(1, 2, 3, 4), drop=(4, 3))
    lines += ["", bold(header), *rest]
    if any(x.causes for x in report.differences):
        lines += ["", *_cause_tables(report)]
        lines += [dim(x) for x in wrap(f"method: {METHOD}", "")]
    return "\n".join(lines)


def multi_diff_rows(report: MultiDiffReport, form: str) -> Iterator[str]:
    """Return one row for each model: its parameters, the difference, and the contribution of
    each cause.
    """
    kinds = _kinds(report)
    header = ("model", "parameters", "difference", *(CAUSE_TITLES.get(x, x) for x in kinds))
    rows = [(safe(report.against), str(report.differences[0].total.a), "0", *("0" for _ in kinds))]
    rows += [
        (
            safe(x.b.name),
            str(x.total.b),
            str(x.delta),
            *(str(_sum_of_kind(x, kind)) for kind in kinds),
        )
        for x in report.differences
    ]
    return format_table(header, rows, form)


def _total_rows(report: MultiDiffReport) -> Iterator[tuple[str, ...]]:
    first = report.differences[0]
    yield "model", "parameters", "difference", "", "layers"
    yield (
        safe(first.a.name, _MAX_NAME),
        f"{first.total.a:,}",
        "",
        "",
        f"{int(first.a.tree.layers.n):,}",
    )
    for x in report.differences:
        layers = f"{int(x.b.tree.layers.n):,}"
        yield (
            safe(x.b.name, _MAX_NAME),
            f"{x.total.b:,}",
            format_signed(x.delta),
            _format_share(x),
            layers,
        )


def _cause_tables(report: MultiDiffReport) -> Iterator[str]:
    """Yield the causes in full if all columns fit, else to three digits, in several tables that
    fit.
    """
    differences, kinds = report.differences, _kinds(report)
    titles = [CAUSE_TITLES.get(x, x) for x in kinds]
    room = terminal_width() - max(map(len, (*titles, "difference")))
    write = _choose_number_format(differences, kinds, room)
    step = len(differences) if write is format_signed else max(room // (_SHORT_NAME + 2), 1)
    for start in range(0, len(differences), step):
        shown = differences[start : start + step]
        names = (safe(x.b.name, 40) if write is format_signed else _cut(x.b.name) for x in shown)
        rows: list[tuple[str, ...]] = [("cause", *names)]
        for kind, title in zip(kinds, titles, strict=True):
            rows.append(
                (
                    title,
                    *(write(_sum_of_kind(x, kind)) if _sum_of_kind(x, kind) else "" for x in shown),
                )
            )
        rows.append(("difference", *(write(x.delta) for x in shown)))
        header, *rest = fit_table(rows, right=range(1, len(shown) + 1))
        yield from (bold(header), *rest)
        if start + step < len(differences):
            yield ""


def _choose_number_format(
    differences: Sequence[DiffReport], kinds: Sequence[str], room: int
) -> Callable[[int], str]:
    width = 2 + max(
        len(format_signed(_sum_of_kind(x, kind))) for x in differences for kind in kinds
    )
    return format_signed if width * len(differences) <= room else format_short_signed


def _cut(name: str, room: int = _SHORT_NAME) -> str:
    name = safe(name)
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _kinds(report: MultiDiffReport) -> list[str]:
    """Return the kinds of causes that occur, in the order of the method."""
    kinds = {x.kind for y in report.differences for x in y.causes}
    return [x for x in CAUSE_TITLES if x in kinds] + sorted(kinds - CAUSE_TITLES.keys())


def _sum_of_kind(report: DiffReport, kind: str) -> int:
    return sum(x.delta for x in report.causes if x.kind == kind)


def diff_csv(report: DiffReport) -> Iterator[str]:
    """Return one row for each weight; the last column sums to the difference."""
    return format_table(_WEIGHT_HEADER, (_csv_row(x) for x in report.weights), "csv")


def diff_markdown(report: DiffReport) -> Iterator[str]:
    """Return three tables: causes, weights, and config keys."""
    a, b = safe(report.a.name), safe(report.b.name)
    causes = ((x.label, format_signed(x.delta), x.where) for x in report.causes)
    yield from format_table(("cause", "difference", "where"), causes, "markdown")
    yield ""
    yield from format_table(_WEIGHT_HEADER, (_csv_row(x) for x in report.weights), "markdown")
    yield ""
    rows = ((x.key, format_setting(x, 0), format_setting(x, 1), x.moves) for x in report.config)
    yield from format_table(("key", a, b, "moves"), rows, "markdown")
    yield ""
    yield METHOD


def _csv_row(pair: WeightPair) -> tuple[str, ...]:
    return (
        pair.group,
        pair.path,
        _csv_shape(pair.a),
        _csv_shape(pair.b),
        *map(str, (*pair.copies, *pair.parameters, pair.delta)),
    )


def _csv_shape(entry: WeightEntry | None) -> str:
    return (
        "" if entry is None else "×".join(map(str, entry.shape)) + (" tied" if entry.tied else "")
    )
