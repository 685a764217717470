"""The tables of a config: its keys by effect next to Meta's arguments, and derived sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ...config_keys.key_meanings import MODEL_ARGS
from ...render.tables import Cell, Column, Part, Row, Table, Text
from ...utils.errors import safe

if TYPE_CHECKING:
    from ...checkpoint.meta_args import ModelArgs
    from .config_report import ConfigKey, ConfigReport

UNREAD = "unread"
"""The group of keys that the family does not read."""
_HEADINGS = {
    "weights": "weights: which weights there are, and their shapes",
    "cache": "cache: the size of the KV cache, not of the weights",
    "compute": "compute: the results, not the size of weights or cache",
    "apart": "apart: weights next to the model, in no total",
    "nothing": "no effect on any number here",
    UNREAD: "not read by this family, so in no number here",
}
_MAX_VALUE = 30
"""Characters of a value; CSV and `rows()` have all of it."""
_META = "Meta's ModelArgs"
_KEYS = (
    Column("key"),
    Column("value"),
    Column("default", shown=False),
    Column(_META, drop=1),
    Column("meaning", below=True),
    Column("changes", shown=False),
)
_SIZES = (Column("", key="formula"), Column("", "count", "value"), Column("", key="says"))
_ARGUMENTS = (
    Column("", key="argument"),
    Column("", key="value"),
    Column("meaning", below=True),
)


def config_tables(report: ConfigReport) -> Iterator[Part]:
    """Yield the keys by effect, the sizes that follow, and what only Meta's arguments say."""
    yield Table(
        columns=_KEYS,
        rows=tuple(_key_rows(report)),
        legend="(default): the key is absent or null; this is the family's default"
        if any(x.absent for x in report.keys)
        else "",
    )
    if report.derived:
        yield Table(
            title="sizes that follow",
            columns=_SIZES,
            rows=tuple((x.formula, x.value, x.says) for x in report.derived),
        )
    yield from _meta(report, report.meta)


def _grouped(keys: Sequence[ConfigKey]) -> Iterator[tuple[str, list[ConfigKey]]]:
    """Return the keys grouped by effect; keys inside an object stay with it."""
    group = {x.key: x.group for x in keys}
    return (
        (str(name), list(group_keys))
        for name, group_keys in groupby(keys, lambda x: group.get(x.key.partition(".")[0], x.group))
    )


def _key_rows(report: ConfigReport) -> Iterator[Row]:
    for group, keys in _grouped(report.keys):
        yield Row((_HEADINGS[group], *("" for _ in _KEYS[1:])), is_heading=True)
        yield from (_key_row(x, report.meta, "") for x in keys if x.moves != "nothing")
        by_meaning: dict[str, list[ConfigKey]] = {}
        for x in keys:
            if x.moves == "nothing":
                by_meaning.setdefault(x.says, []).append(x)
        for same in by_meaning.values():
            yield from (_key_row(x, report.meta, None) for x in same[:-1])
            yield _key_row(same[-1], report.meta, same[-1].says)


def _key_row(x: ConfigKey, meta: ModelArgs | None, meaning: str | None) -> Row:
    shown = f"{x.says} → {x.moves}" if meaning == "" else meaning or ""
    empty = x.absent and (x.value is None or x.value in ("", {}, []))
    value = "none" if empty else format_value(x.value, _MAX_VALUE)
    depth = 0 if x.moves == "nothing" else x.key.count(".")
    cells = (
        Cell(x.key, text=safe(x.key.rpartition(".")[2] if depth else x.key, 60)),
        Cell(x.value, text=f"{value} (default)" if x.absent else value),
        *(x.absent, _meta_field(x, meta), Cell(x.says, text=shown), x.moves),
    )
    return Row(cells, level=1 + depth)


def _meta_field(x: ConfigKey, meta: ModelArgs | None) -> str:
    if meta is None or not x.meta:
        return ""
    if len(x.meta) > 1:
        return "two fields, below"
    return f"{x.meta[0]} = {json.dumps(getattr(meta, x.meta[0]))}"


def _meta(report: ConfigReport, args: ModelArgs | None) -> Iterator[Part]:
    """Yield the arguments that no key expresses alone, the MLP width that they give, and the
    properties that they cannot express.
    """
    if args is None:
        yield Text(f"no params.json: {report.why}", apart=True)
        return
    single = {x.meta[0] for x in report.keys if len(x.meta) == 1}
    yield Table(
        title="other arguments of Meta's",
        columns=_ARGUMENTS,
        rows=tuple(_argument_row(name, args) for name in args.fields if name not in single),
    )
    yield Text(f"F = {args.ffn_width} = {_width(args)}", indent="  ")
    if same := [x for x in report.widths if x != (args.multiple_of, args.ffn_dim_multiplier)]:
        pairs = ", ".join(f"{m} and {factor or 'none'}" for m, factor in same[:5])
        more = f", and {len(same) - 5} more pairs" if len(same) > 5 else ""
        yield Text(
            f"the same F follows from a multiple_of and ffn_dim_multiplier of {pairs}{more}",
            indent="  ",
        )


def _argument_row(name: str, args: ModelArgs) -> Row:
    default = " (default)" if name.startswith("max_") else ""
    value = getattr(args, name)
    says, moves = MODEL_ARGS[name]
    cell = Cell(value, text=f"{json.dumps(value)}{default}")
    return Row((name, cell, f"{says} → {moves}"), level=1)


def _width(args: ModelArgs) -> str:
    """Return Meta's rounding of the MLP width, in numbers."""
    m, width = args.multiple_of, f"int(8 · {args.dim} / 3)"
    if args.ffn_dim_multiplier is not None:
        width = f"int({args.ffn_dim_multiplier} · {width})"
    return f"{m} · ⌈{width} / {m}⌉"


def format_value(value: object, limit: int) -> str:
    """Return a value on one line: equal neighbors in a list as `5 × …`, long values cut."""
    if isinstance(value, dict):
        return "{}" if not value else "1 key" if len(value) == 1 else f"{len(value)} keys"
    if not isinstance(value, (list, tuple)):
        return _cut(json.dumps(value, ensure_ascii=False, default=str), limit)
    count = f", …] ({len(value)})"
    parts: list[str] = []
    lengths = [1]  # of the text up to each part
    for x, same in groupby(value):
        n = sum(1 for _ in same)
        text = x if isinstance(x, str) else json.dumps(x, ensure_ascii=False, default=str)
        parts.append(_cut(f"{n} × {text}" if n > 1 else text, limit - 2))
        lengths.append(lengths[-1] + len(parts[-1]) + 2 * (len(parts) > 1))
        if lengths[-1] >= limit and len(parts) > 1:  # nor does the rest fit
            break
    else:
        full = f"[{', '.join(parts)}]"
        if len(full) <= limit or len(parts) == 1:
            return full
    kept = max((i for i in range(1, len(parts)) if lengths[i] + len(count) <= limit), default=0)
    return f"[{', '.join(parts[:kept])}{count}" if kept else f"[…] ({len(value)})"


def _cut(text: str, limit: int) -> str:
    return safe(text, limit if len(text) <= limit else max(limit - 18, 10))
