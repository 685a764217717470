"""The configuration on a terminal and as JSON."""

from __future__ import annotations

import json
from typing import Any

from ..args import ModelArgs
from ..errors import ConfigError, safe
from ..glossary import ARGS
from ..model import Model
from ..views.config import Configuration, configuration, params_json
from .table import bold, dim, wrapped


def explained(model: Model) -> Configuration:
    """The report for a model: only families with Meta's own names can be said as `ModelArgs`."""
    return configuration(model.config, own=model.family.meta is not None)


def config_json(model: Model) -> dict[str, Any]:
    """What `llamath config --json` prints."""
    report = explained(model)
    return {
        "model": model.name,
        "hf": dict(model.config.data),
        "meta": None if report.meta is None else {name: getattr(report.meta, name) for name in report.meta.fields},
        "why": report.why or None,
        "keys": [{name: getattr(x, name) for name in x.fields} for x in report.keys],
    }


def config_params(model: Model) -> str:
    """A `params.json` that gives this model."""
    report = explained(model)
    if report.meta is None:
        raise ConfigError(f"{model.name} cannot be said as params.json: {report.why}")
    return json.dumps(params_json(report.meta), indent=2)


def config_text(model: Model) -> str:
    """Both sayings, a line or two for each key."""
    report = explained(model)
    lines = [bold(f"{model.name}: the configuration as Hugging Face says it")]
    for x in report.keys:
        value = safe(json.dumps(x.value, ensure_ascii=False, default=str), 60)
        lines += _entry(safe(x.key, 60), value + (" (absent: the family's default)" if x.absent else ""), x.says, x.moves)
    lines += ["", bold("and as Meta's ModelArgs")]
    if report.meta is None:
        return "\n".join([*lines, *wrapped(report.why)])
    return "\n".join([*lines, *_args(report.meta)])


def _args(args: ModelArgs) -> list[str]:
    lines = []
    for name in args.fields:
        says, moves = ARGS[name]
        lines += _entry(name, json.dumps(getattr(args, name)), says, moves)
    return [
        *lines,
        *wrapped(f"feed-forward width: {args.hidden} = multiple_of · ⌈int(ffn_dim_multiplier · int(8 · dim / 3)) / multiple_of⌉"),
    ]


def _entry(key: str, value: str, says: str, moves: str) -> list[str]:
    return [f"  {key} = {value}", *(dim(line) for line in wrapped(f"{says}; moves {moves}", indent="      "))]
