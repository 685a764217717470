"""The config on a terminal, key by key, and as Meta's `params.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby

from ...analysis.config_report import UNREAD, ConfigKey, ConfigReport, config_report, params_json
from ...checkpoint.meta_args import ModelArgs
from ...config_keys import MODEL_ARGS
from ...model import Model
from ...utils.errors import ConfigError, safe
from ..table import bold, dim, fit_table, note_lines, terminal_width, wrap

_HEADINGS = {
    "weights": "weights: which weights there are, and their shapes",
    "cache": "cache: the size of the KV cache, not of the weights",
    "compute": "compute: the results, not the size of weights or cache",
    "apart": "apart: weights next to the model, in no total",
    "nothing": "no effect on any number here",
    UNREAD: "not read by this family, so in no number here",
}
_META_WIDTH = 26
"""The width of the column of Meta's arguments."""
_MIN_WIDTH = 72
"""On a narrower terminal, Meta's arguments stand below the keys."""
_NO_BREAK = "\xa0"
"""A space at which no line is broken."""


def params_json_text(model: Model) -> str:
    """Return a `params.json` that gives this model."""
    report = config_report(model)
    if report.meta is None:
        raise ConfigError(f"{model.name} cannot be expressed as params.json: {report.why}")
    return json.dumps(params_json(report.meta), indent=2)


def config_text(report: ConfigReport) -> str:
    """Return the keys grouped by effect, each with its meaning, next to Meta's arguments."""
    model = report.model
    lines = [
        *(bold(line) for line in wrap(f"{model.name}: the config, key by key", indent="")),
        *(
            dim(line)
            for line in wrap(f"{model.family.name} family, from {model.source}", indent="")
        ),
        *map(dim, wrap("below each key: its meaning → what it changes", "")),
    ]
    if any(x.absent for x in report.keys):
        lines += map(
            dim, wrap("(default): the key is absent or null; this is the family's default", "")
        )
    width = min(max(len(safe(x.key, 60)) for x in report.keys if "." not in x.key), 32)
    meta_heading = "Meta's ModelArgs" if report.meta else ""
    for group, keys in _grouped(report.keys):
        lines += ["", bold(_with_meta(_HEADINGS[group], meta_heading))]
        lines += [
            line for x in keys if x.moves != "nothing" for line in _entry(x, width, report.meta)
        ]
        lines += _without_effect([x for x in keys if x.moves == "nothing"])
        meta_heading = ""
    return "\n".join([*lines, *_derived(report), "", *_meta(report)])


def _grouped(keys: tuple[ConfigKey, ...]) -> Iterator[tuple[str, list[ConfigKey]]]:
    """Return the keys grouped by effect; keys inside an object stay with it."""
    group = {x.key: x.group for x in keys}
    return (
        (str(name), list(group_keys))
        for name, group_keys in groupby(keys, lambda x: group.get(x.key.partition(".")[0], x.group))
    )


def _entry(x: ConfigKey, width: int, meta: ModelArgs | None) -> Iterator[str]:
    depth = 2 * (1 + x.key.count("."))
    name = safe(x.key.rpartition(".")[2], 60)
    mark = " (default)" if x.absent else ""
    start = f"{'':{depth}}{name:{max(width + 2 - depth, 0)}} = "
    empty = x.absent and (x.value is None or x.value in ("", {}, []))
    value = (
        "none"
        if empty
        else format_value(x.value, max(terminal_width() - len(start) - len(mark), 20))
    )
    if len(start) + len(value) + len(mark) > terminal_width():
        yield start.rstrip()
        start = " " * (depth + 4)
    yield _with_meta(f"{start}{value}{mark}", _meta_field(x, meta))
    yield from _explained(x.says, x.moves, depth + 4)


def _explained(says: str, moves: str, indent: int) -> list[str]:
    """Return a key's meaning and effect, on one line or on one each."""
    space = " " * indent
    lines = wrap(f"{says} → {moves}", space)
    return [
        dim(x)
        for x in (lines if len(lines) == 1 else [*wrap(says, space), *wrap(f"→ {moves}", space)])
    ]


def _meta_field(x: ConfigKey, meta: ModelArgs | None) -> str:
    if meta is None or not x.meta:
        return ""
    return (
        "two fields, below"
        if len(x.meta) > 1
        else (f"{x.meta[0]} = {json.dumps(getattr(meta, x.meta[0]))}")
    )


def _with_meta(left: str, right: str) -> str:
    """Return a text with one in the column of Meta's arguments, which is on the next line if
    there is no room.
    """
    if not right:
        return "\n".join(wrap(left, "")) if left == left.lstrip() else left
    start = terminal_width() - _META_WIDTH
    if len(left) + 2 <= start and terminal_width() >= _MIN_WIDTH:
        return f"{left:{start}}{right}".rstrip()
    indent = start if terminal_width() >= _MIN_WIDTH else max(min(start, 12), 0)
    return f"{left}\n{'':{indent}}{right}"


def _without_effect(keys: list[ConfigKey]) -> Iterator[str]:
    """Yield keys without effect, those with one meaning together."""
    by_meaning: dict[str, list[str]] = {}
    for x in keys:
        by_meaning.setdefault(x.says, []).append(
            f"{safe(x.key, 60)} = {format_value(x.value, 40)}{' (default)' if x.absent else ''}"
        )
    for why, group in by_meaning.items():
        first, *rest = wrap(f"{', '.join(group)}: {why}", indent="    ")
        yield from (first[2:], *rest)


def _derived(report: ConfigReport) -> list[str]:
    rows = [(f"  {x.formula}", f"{x.value:,}", x.says) for x in report.derived]
    return ["", bold("sizes that follow"), *fit_table(rows, right=(1,))] if rows else []


def _meta(report: ConfigReport) -> Iterator[str]:
    """Yield the arguments that no key expresses alone, the MLP width that they give, and the
    properties that they cannot express.
    """
    if (args := report.meta) is None:
        yield from wrap(f"no params.json: {report.why}", indent="")
        return
    yield bold("other arguments of Meta's")
    single = {x.meta[0] for x in report.keys if len(x.meta) == 1}
    for name in (x for x in args.fields if x not in single):
        yield (
            f"  {name} = "
            f"{json.dumps(getattr(args, name))}{' (default)' if name.startswith('max_') else ''}"
        )
        yield from _explained(*MODEL_ARGS[name], 6)
    yield from wrap(f"F = {args.ffn_width} = {_width(args)}")
    if same := [x for x in report.widths if x != (args.multiple_of, args.ffn_dim_multiplier)]:
        pairs = ", ".join(
            f"{m} and {factor or 'none'}".replace(" ", _NO_BREAK) for m, factor in same[:5]
        )
        more = f", and {len(same) - 5} more pairs" if len(same) > 5 else ""
        lines = wrap(
            f"the same F follows from a multiple_of and ffn_dim_multiplier of {pairs}{more}"
        )
        yield from (line.replace(_NO_BREAK, " ") for line in lines)
    for remark in report.remarks:
        yield from note_lines([remark])


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
