"""The configuration on a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ...analysis.config_report import UNREAD, ConfigKey, ConfigReport, config_report, params_json
from ...config_keys import MODEL_ARGS
from ...core.errors import ConfigError, safe
from ...core.meta_args import ModelArgs
from ...model import Model
from ..table import align, bold, dim, terminal_width, wrap

HEADINGS = {
    "weights": "weights: which matrices there are, and how large",
    "cache": "cache: no weight, but what is kept of each token",
    "compute": "compute: no weight and no cache, but what comes out",
    "apart": "apart: weights beside the model, in no total",
    "nothing": "nothing that is counted here",
    UNREAD: "not read by this family, so in no number here",
}
BESIDE = 26
"""How wide the column of Meta's words is."""

GLUE = "\xa0"
"""Stands for a space at which no line is broken."""


def explained(model: Model) -> ConfigReport:
    """The report for a model: only families with Meta's own names can be said as `ModelArgs`."""
    return config_report(model.config, model.family.name, model.family.build, model.args or model.family.meta is not None)


def config_json(model: Model) -> dict[str, Any]:
    """What `llamath config --json` prints."""
    report = explained(model)
    return {
        "model": model.name,
        "hf": dict(model.config.data),
        "meta": None if report.meta is None else {name: getattr(report.meta, name) for name in report.meta.fields},
        "why": report.why or None,
        "keys": [{name: getattr(x, name) for name in x.fields} for x in report.keys],
        "derived": [{name: getattr(x, name) for name in x.fields} for x in report.derived],
        "widths": [{"multiple_of": m, "ffn_dim_multiplier": x} for m, x in report.widths],
        "remarks": list(report.remarks),
    }


def params_json_text(model: Model) -> str:
    """A `params.json` that gives this model."""
    report = explained(model)
    if report.meta is None:
        raise ConfigError(f"{model.name} cannot be said as params.json: {report.why}")
    return json.dumps(params_json(report.meta), indent=2)


def config_text(model: Model) -> str:
    """Both sayings, a line or two for each key, by what they move."""
    report = explained(model)
    lines = [
        *(bold(line) for line in wrap(f"{model.name}: its configuration, key by key", indent="")),
        *(dim(line) for line in wrap(f"{model.family.name} family, from {model.source}", indent="")),
        dim("below each key: what it says → what it moves"),
    ]
    if any(x.absent for x in report.keys):
        lines.append(dim("(default): the key is absent or null, and the family has this instead"))
    width = min(max(len(safe(x.key, 60)) for x in report.keys if "." not in x.key), 32)
    beside = "Meta's ModelArgs" if report.meta else ""
    for group, keys in _grouped(report.keys):
        lines += ["", _headed(HEADINGS[group], beside)]
        lines += [line for x in keys if x.moves != "nothing" for line in _entry(x, width, report.meta)]
        lines += _reasons([x for x in keys if x.moves == "nothing"])
        beside = ""
    return "\n".join([*lines, *_derived(report), "", *_meta(report)])


def _grouped(keys: tuple[ConfigKey, ...]) -> Iterator[tuple[str, list[ConfigKey]]]:
    """The keys by what they move; what is inside an object stays with it."""
    group = {x.key: x.group for x in keys}
    return ((str(name), list(found)) for name, found in groupby(keys, lambda x: group.get(x.key.partition(".")[0], x.group)))


def _entry(x: ConfigKey, width: int, meta: ModelArgs | None) -> Iterator[str]:
    depth = 2 * (1 + x.key.count("."))
    name = safe(x.key.rpartition(".")[2], 60)
    mark = " (default)" if x.absent else ""
    left = f"{'':{depth}}{name:{max(width + 2 - depth, 0)}} = "
    empty = x.absent and (x.value is None or x.value in ("", {}, []))
    left += ("none" if empty else format_value(x.value, max(terminal_width() - len(left) - len(mark), 20))) + mark
    yield _beside(left, _said(x, meta))
    yield from _explained(x.says, x.moves, depth + 4)


def _explained(says: str, moves: str, indent: int) -> list[str]:
    """What a key says and moves: on one line, or each on its own."""
    space = " " * indent
    lines = wrap(f"{says} → {moves}", space)
    return [dim(x) for x in (lines if len(lines) == 1 else [*wrap(says, space), *wrap(f"→ {moves}", space)])]


def _said(x: ConfigKey, meta: ModelArgs | None) -> str:
    if meta is None or not x.meta:
        return ""
    return "two fields, below" if len(x.meta) > 1 else f"{x.meta[0]} = {json.dumps(getattr(meta, x.meta[0]))}"


def _headed(text: str, right: str) -> str:
    return bold(_beside(text, right))


def _beside(left: str, right: str) -> str:
    """Something in the column on the right; on a line of its own where the left is too long."""
    start = terminal_width() - BESIDE
    if not right or len(left) + 2 <= start:
        return f"{left:{start}}{right}".rstrip()
    return f"{left}\n{'':{start}}{right}"


def _reasons(keys: list[ConfigKey]) -> Iterator[str]:
    """Keys of no model's arithmetic, those of one reason together."""
    found: dict[str, list[str]] = {}
    for x in keys:
        found.setdefault(x.says, []).append(f"{safe(x.key, 60)} = {format_value(x.value, 40)}{' (default)' if x.absent else ''}")
    for why, said in found.items():
        first, *rest = wrap(f"{', '.join(said)}: {why}", indent="    ")
        yield from (first[2:], *rest)


def _derived(report: ConfigReport) -> list[str]:
    rows = [(f"  {x.formula}", f"{x.value:,}", x.says) for x in report.derived]
    return ["", bold("what follows from these"), *align(rows, right=(1,))] if rows else []


def _meta(report: ConfigReport) -> Iterator[str]:
    """What `ModelArgs` say besides, the width that they give, and what they leave unsaid."""
    if (args := report.meta) is None:
        yield from wrap(f"no params.json: {report.why}", indent="")
        return
    yield bold("what Meta's ModelArgs say in another way")
    beside = {x.meta[0] for x in report.keys if len(x.meta) == 1}
    for name in (x for x in args.fields if x not in beside):
        yield f"  {name} = {json.dumps(getattr(args, name))}{' (default)' if name.startswith('max_') else ''}"
        yield from _explained(*MODEL_ARGS[name], 6)
    yield from wrap(f"F = {args.ffn_width} = {_width(args)}")
    if same := [x for x in report.widths if x != (args.multiple_of, args.ffn_dim_multiplier)]:
        pairs = ", ".join(f"{m} and {factor or 'none'}".replace(" ", GLUE) for m, factor in same[:5])
        more = f", and {len(same) - 5} more pairs" if len(same) > 5 else ""
        lines = wrap(f"the same F comes of a multiple_of and ffn_dim_multiplier of {pairs}{more}")
        yield from (line.replace(GLUE, " ") for line in lines)
    for remark in report.remarks:
        yield from wrap(f"note: {remark}", indent="")


def _width(args: ModelArgs) -> str:
    """Meta's rounding of the feed-forward width, in numbers."""
    m, width = args.multiple_of, f"int(8 · {args.dim} / 3)"
    if args.ffn_dim_multiplier is not None:
        width = f"int({args.ffn_dim_multiplier} · {width})"
    return f"{m} · ⌈{width} / {m}⌉"


def format_value(value: object, limit: int) -> str:
    """A value on one line: the equal neighbours of a list as `5 × …`, long ones cut."""
    if isinstance(value, dict):
        return "{}" if not value else "1 key" if len(value) == 1 else f"{len(value)} keys"
    if not isinstance(value, (list, tuple)):
        return _cut(json.dumps(value, ensure_ascii=False, default=str), limit)
    runs = ((x if isinstance(x, str) else json.dumps(x, ensure_ascii=False, default=str), len(list(same))) for x, same in groupby(value))
    parts = [_cut(f"{n} × {x}" if n > 1 else x, limit - 2) for x, n in runs]
    whole = f"[{', '.join(parts)}]"
    if len(whole) <= limit or len(parts) == 1:
        return whole
    count = f", …] ({len(value)})"
    while len(parts) > 1 and len(f"[{', '.join(parts)}{count}") > limit:
        parts.pop()
    return f"[{', '.join(parts)}{count}"


def _cut(text: str, limit: int) -> str:
    return safe(text, limit if len(text) <= limit else max(limit - 18, 10))
