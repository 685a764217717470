"""The configuration on a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ..args import ModelArgs
from ..errors import ConfigError, safe
from ..glossary import ARGS
from ..model import Model
from ..views.config import UNREAD, Configuration, Key, configuration, params_json
from .table import aligned, bold, columns, dim, wrapped

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


def explained(model: Model) -> Configuration:
    """The report for a model: only families with Meta's own names can be said as `ModelArgs`."""
    return configuration(model.config, model.family.name, model.family.build, own=model.family.meta is not None)


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


def config_params(model: Model) -> str:
    """A `params.json` that gives this model."""
    report = explained(model)
    if report.meta is None:
        raise ConfigError(f"{model.name} cannot be said as params.json: {report.why}")
    return json.dumps(params_json(report.meta), indent=2)


def config_text(model: Model) -> str:
    """Both sayings, a line or two for each key, by what they move."""
    report = explained(model)
    lines = [
        bold(f"{model.name}: what each key of its configuration says → what it moves"),
        *(dim(line) for line in wrapped(f"{model.family.name} family, from {model.source}", indent="")),
    ]
    if any(x.absent for x in report.keys):
        lines.append(dim("(default): the key is absent or null, and the family has this instead"))
    width = min(max(len(safe(x.key.rpartition(".")[2], 60)) for x in report.keys), 32)
    beside = "Meta's ModelArgs" if report.meta else ""
    for group, keys in _grouped(report.keys):
        lines += ["", _headed(HEADINGS[group], beside)]
        lines += _reasons(keys) if group == "nothing" else [line for x in keys for line in _entry(x, width, report.meta)]
        beside = ""
    return "\n".join([*lines, *_derived(report), "", *_meta(report)])


def _grouped(keys: tuple[Key, ...]) -> Iterator[tuple[str, list[Key]]]:
    """The keys by what they move; what is inside an object stays with it."""
    group = {x.key: x.group for x in keys if "." not in x.key}
    roots = groupby(keys, lambda x: group.get(x.key.partition(".")[0], x.group))
    return ((name, list(found)) for name, found in roots)


def _entry(x: Key, width: int, meta: ModelArgs | None) -> Iterator[str]:
    depth = 2 * (1 + x.key.count("."))
    name = safe(x.key.rpartition(".")[2], 60)
    mark = " (default)" if x.absent else ""
    left = f"{'':{depth}}{name:{max(width + 2 - depth, 0)}} = "
    left += shown(x.value, max(columns() - len(left) - len(mark), 20)) + mark
    yield _beside(left, _said(x, meta))
    yield from (dim(line) for line in wrapped(f"{x.says} → {x.moves}", indent=" " * (depth + 4)))


def _said(x: Key, meta: ModelArgs | None) -> str:
    if meta is None or not x.meta:
        return ""
    return "two fields, below" if len(x.meta) > 1 else f"{x.meta[0]} = {json.dumps(getattr(meta, x.meta[0]))}"


def _headed(text: str, right: str) -> str:
    return bold(_beside(text, right))


def _beside(left: str, right: str) -> str:
    """Something in the column on the right; on a line of its own where the left is too long."""
    start = columns() - BESIDE
    if not right or len(left) + 2 <= start:
        return f"{left:{start}}{right}".rstrip()
    return f"{left}\n{'':{start}}{right}"


def _reasons(keys: list[Key]) -> Iterator[str]:
    """Keys that move nothing, those of one reason together."""
    found: dict[str, list[str]] = {}
    for x in keys:
        why = f"{x.says}, {x.moves}" if x.moves != "nothing" else x.says
        found.setdefault(why, []).append(f"{safe(x.key, 60)} = {shown(x.value, 40)}{' (default)' if x.absent else ''}")
    for why, said in found.items():
        first, *rest = wrapped(f"{', '.join(said)}: {why}", indent="    ")
        yield from (first[2:], *rest)


def _derived(report: Configuration) -> list[str]:
    rows = [(f"  {x.formula}", f"{x.value:,}", x.says) for x in report.derived]
    return ["", bold("what follows"), *aligned(rows, right=(1,))] if rows else []


def _meta(report: Configuration) -> Iterator[str]:
    """What `ModelArgs` say besides, the width that they give, and what they leave unsaid."""
    if (args := report.meta) is None:
        yield from wrapped(f"no params.json: {report.why}", indent="")
        return
    yield bold("what Meta's ModelArgs say in another way")
    beside = {x.meta[0] for x in report.keys if len(x.meta) == 1}
    for name in (x for x in args.fields if x not in beside):
        says, moves = ARGS[name]
        yield f"  {name} = {json.dumps(getattr(args, name))}"
        yield from (dim(line) for line in wrapped(f"{says} → {moves}", indent="      "))
    m, factor = args.multiple_of, "" if args.ffn_dim_multiplier is None else f"{args.ffn_dim_multiplier} · "
    yield from wrapped(f"F = {args.hidden} = {m} · ⌈int({factor}int(8 · {args.dim} / 3)) / {m}⌉".replace("int(int(", "(int("))
    same = [
        f"{m} and {factor or 'none'}" for m, factor in report.widths if (m, factor) != (m, args.ffn_dim_multiplier) or m != args.multiple_of
    ]
    if same:
        more = f", and {len(same) - 5} more" if len(same) > 5 else ""
        yield from wrapped(f"other multiple_of and ffn_dim_multiplier with the same F: {'; '.join(same[:5])}{more}")
    for remark in report.remarks:
        yield from wrapped(f"note: {remark}", indent="")


def shown(value: object, limit: int) -> str:
    """A value on one line: the equal neighbours of a list as `5 × …`, long ones cut."""
    if isinstance(value, dict):
        return f"{len(value)} {'key' if len(value) == 1 else 'keys'}"
    if not isinstance(value, (list, tuple)):
        return safe(json.dumps(value, ensure_ascii=False, default=str), limit)
    runs = ((x, len(list(same))) for x, same in groupby(value))
    parts = [safe(f"{n} × {_plain(x)}" if n > 1 else _plain(x), limit) for x, n in runs]
    whole = f"[{', '.join(parts)}]"
    if len(whole) <= limit:
        return whole
    count = f", …] ({len(value)})"
    while len(parts) > 1 and len(f"[{', '.join(parts)}{count}") > limit:
        parts.pop()
    return f"[{', '.join(parts)}{count}"


def _plain(x: object) -> str:
    return x if isinstance(x, str) else json.dumps(x, ensure_ascii=False, default=str)
