"""The tables of a difference: the causes as a waterfall, the weights, the config keys, the stored
bytes; and of several models compared with the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ....model import FamilyModel, Model
from ....render.tables import Cell, Column, Part, Row, Step, Table, Text, heading
from ....utils.errors import safe
from ....utils.number_format import format_count, format_list, format_percent
from ....utils.number_format import short_count as short
from ..config_tables import format_value
from .causes import CAUSE_TITLES, METHOD, short_path
from .storage_diff import format_layers, join_formats

if TYPE_CHECKING:
    from .model_diff import ConfigDifference, DiffReport, MultiDiffReport, WeightEntry, WeightPair
    from .storage_diff import ModuleFormats, StorageDifference, StoredSize

_MAX_KEY = 32
"""A longer dotted key is shown by its last part."""
_MAX_VALUE = 22
_MAX_NAME, _SHORT_NAME = 30, 14
_MAX_MODULES = 24
"""The most modules that are listed."""
_CAUSES = (
    Column("", key="cause"),
    Column("", "signed", "difference"),
    Column("", "waterfall", ""),
    Column("where", below=True),
)


def diff_tables(report: DiffReport) -> Iterator[Part]:
    """Yield the causes, the weights, the config keys, the stored bytes, and the equal parts."""
    if report.causes:
        yield Table(title="causes", columns=_CAUSES, rows=tuple(_cause_rows(report)))
    yield _weights(report)
    if report.config:
        yield _config(report)
    if report.storage is not None:
        yield from _storage(report.storage, report)
    yield Text(_equal_parts(report), apart=True)
    if report.causes:
        yield Text(f"method: {METHOD}", "dim")


def format_share(report: DiffReport) -> str:
    """Return the difference as a share of the first model."""
    share = format_percent(Fraction(report.delta, report.total.a or 1)).replace("-", "−")
    return f"+{share}" if report.delta > 0 else share


def _cause_rows(report: DiffReport) -> Iterator[Row]:
    at = report.total.a
    yield _total_row(report.a.name, at)
    for x in report.causes:
        yield Row((x.label, x.delta, Step(at, at + x.delta), x.where))
        at += x.delta
    yield _total_row(report.b.name, report.total.b)


def _total_row(name: str, total: int) -> Row:
    cells = (safe(name, _MAX_NAME), Cell(total, "count"), Step(0, total, is_total=True), "")
    return Row(cells, is_sum=True)


def _weights(report: DiffReport) -> Table:
    columns = (
        Column("group", shown=False),
        Column("weight"),
        Column(_cut(report.a.name), "right", "a shape"),
        Column(_cut(report.b.name), "right", "b shape"),
        Column("×", "right", "", drop=1),
        *(Column(x, shown=False) for x in ("a copies", "b copies", "a", "b")),
        Column("difference", "signed"),
    )
    rows = tuple(_weight_rows(report.weights))
    return Table(
        title="weights" if rows else "", columns=columns, rows=rows, most=None if rows else 0
    )


def _weight_rows(pairs: Sequence[WeightPair]) -> Iterator[Row]:
    inside = False
    in_all_layers = sum(y.delta for y in pairs if y.path.startswith("layers.{l}."))
    for x in pairs:
        in_layers = x.path.startswith("layers.{l}.")
        if in_layers and not inside:
            blank = ("", "", "", None, None, None, None)
            yield Row(("", "layers", *blank, in_all_layers), is_sum=True)
        inside = in_layers
        cells = (
            *(x.group, Cell(x.path, text=short_path(x.path))),
            *(_entry(x.a), _entry(x.b), _copies(x), *x.copies, *x.parameters, x.delta),
        )
        yield Row(cells, level=int(in_layers))


def _entry(entry: WeightEntry | None) -> Cell:
    if entry is None:
        return Cell("", text="–")
    shape = "×".join(map(str, entry.shape))
    return Cell(f"{shape} tied", text="tied") if entry.tied else Cell(shape)


def _copies(pair: WeightPair) -> str:
    ours, theirs = map(str, pair.copies)
    shown = dict.fromkeys(x for x in (ours, theirs) if x != "0")
    return "→".join(shown)


def _config(report: DiffReport) -> Table:
    """Return the config keys that differ, each with its effect."""
    names = (_cut(x.name, _MAX_VALUE) for x in (report.a, report.b))
    defaults = any(any(x.default) for x in report.config)
    return Table(
        columns=(
            Column("configuration", key="key"),
            *(Column(x, key=key) for x, key in zip(names, ("a", "b"), strict=True)),
            Column("changes", drop=1),
        ),
        rows=tuple(_config_cells(x) for x in report.config),
        legend="*: the key is absent or null; this is the family's default" if defaults else "",
    )


def _config_cells(x: ConfigDifference) -> tuple[Any, ...]:
    key = x.key if len(x.key) <= _MAX_KEY else x.key.rpartition(".")[2]
    values = (
        Cell(value, text=format_setting(x, i, _MAX_VALUE)) for i, value in enumerate((x.a, x.b))
    )
    return Cell(x.key, text=safe(key, 60)), *values, x.moves


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


def _storage(storage: StorageDifference, report: DiffReport) -> Iterator[Part]:
    """Yield the bytes and bits per weight of each group, and the modules that two recipes store
    differently.
    """
    columns = (
        Column("stored", key="group"),
        Column(_cut(report.a.name), key="a"),
        Column("bits", "right", "a bits"),
        Column(_cut(report.b.name), key="b"),
        Column("bits", "right", "b bits"),
        Column("bytes", "signed", "difference", drop=1),
    )
    totals = (cell for x in (storage.a, storage.b) for cell in (f"{x.bytes:,}", _bits(x)))
    rows = (
        *(_storage_row(x.group, (x.a, x.b), x.delta) for x in storage.groups),
        Row(("total, bytes", *totals, storage.delta or None), is_sum=True),
    )
    yield Table(columns=columns, rows=rows)
    if storage.modules:
        yield heading("modules that are stored differently")
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
            text = f"{', '.join(names)}{safe(where, 200)}: {change}"
            yield Text(text, indent="  ")
        if len(alike) > _MAX_MODULES:
            yield Text(f"and {len(alike) - _MAX_MODULES:,} more (--json lists all)", indent="  ")


def _storage_row(group: str, sides: Iterable[StoredSize], delta: int) -> Row:
    cells = (
        cell for x in sides for cell in (join_formats(x.formats[:2]) if x.bytes else "–", _bits(x))
    )
    return Row((group, *cells, delta or None))


def _sides_of(x: ModuleFormats) -> Iterator[str]:
    for name, reason in ((x.a, x.reason_a), (x.b, x.reason_b)):
        yield f"{name} ({safe(reason, 60)})" if reason else name


def _bits(size: StoredSize) -> Cell:
    bits = size.bits_per_weight
    return Cell(bits, text=f"{float(bits):.3f}" if bits is not None else "")


def _equal_parts(report: DiffReport) -> str:
    """Summarize the equal weights."""
    same = report.same
    keys = format_count(len(same.config), "config key")
    stored = report.storage is not None and report.storage.delta
    if not report.weights and not report.config and not stored:
        return f"nothing differs: {format_count(len(same.weights), 'weight')}, {keys}"
    names = [short_path(x) for x in same.weights]
    if not names:
        return f"equal: no weight, {keys}"
    return f"equal: {format_list(names, 6)} ({short(same.parameters)}), {keys}"


def multi_diff_tables(report: MultiDiffReport) -> Iterator[Part]:
    """Yield the totals of all models, and the causes of each difference."""
    kinds = _kinds(report)
    columns = (
        Column("model"),
        Column("parameters", "count"),
        Column("difference", "signed"),
        Column("", "right", "", drop=2),
        Column("layers", "count", "num_layers", drop=1),
        *(Column(CAUSE_TITLES.get(x, x), shown=False) for x in kinds),
    )
    yield Table(columns=columns, rows=tuple(_total_rows(report, kinds)))
    if any(x.causes for x in report.differences):
        names = [Column(safe(x.b.name, 40), "signed", "") for x in report.differences]
        yield Table(
            columns=(Column("cause", key=""), *names),
            rows=tuple(_cause_cells(report, kinds)),
            split=True,
        )
        yield Text(f"method: {METHOD}", "dim")


def _total_rows(report: MultiDiffReport, kinds: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    first = report.differences[0]
    name, layers = safe(first.a.name, _MAX_NAME), _num_layers(first.a)
    yield name, first.total.a, Cell(0, text=""), "", layers, *(0 for _ in kinds)
    for x in report.differences:
        yield (
            *(safe(x.b.name, _MAX_NAME), x.total.b, x.delta, format_share(x)),
            *(_num_layers(x.b), *(_sum_of_kind(x, kind) for kind in kinds)),
        )


def _num_layers(model: Model) -> Cell:
    """Return the number of layers, which tensors without a family do not tell."""
    return Cell(int(model.tree.layers.n) if isinstance(model, FamilyModel) else None)


def _cause_cells(report: MultiDiffReport, kinds: Sequence[str]) -> Iterator[Row]:
    for kind in kinds:
        sums = (_sum_of_kind(x, kind) or None for x in report.differences)
        yield Row((CAUSE_TITLES.get(kind, kind), *sums))
    yield Row(("difference", *(x.delta for x in report.differences)), is_sum=True)


def _cut(name: str, room: int = _SHORT_NAME) -> str:
    name = safe(name)
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _kinds(report: MultiDiffReport) -> list[str]:
    """Return the kinds of causes that occur, in the order of the method."""
    kinds = {x.kind for y in report.differences for x in y.causes}
    return [x for x in CAUSE_TITLES if x in kinds] + sorted(kinds - CAUSE_TITLES.keys())


def _sum_of_kind(report: DiffReport, kind: str) -> int:
    return sum(x.delta for x in report.causes if x.kind == kind)
