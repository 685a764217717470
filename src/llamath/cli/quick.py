"""`ls`, `verify` and `count` in their plainest form, without click: importing it costs more than reading a checkpoint of 800 GB.

What is not exactly one of these forms is click's to understand, help and mistakes included.
"""

from __future__ import annotations

import os
from typing import Any

OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "ls": {"--json": {"form": "json"}, "--csv": {"form": "csv"}, "--unfold": {"unfold": True}, "--tree": {"tree": True}},
    "verify": {"--json": {"as_json": True}},
    "count": {"--json": {"form": "json"}},
}
"""Command → the options that it may have here, one at a time, and what they mean to its answer."""


def quick(args: list[str]) -> int | None:
    """The exit code, if `args` are one of these forms: a command, one plain argument, at most one option; else None and nothing done."""
    options = OPTIONS.get(args[0]) if args else None
    if options is None or os.name != "posix" or any(name.endswith("_COMPLETE") for name in os.environ):
        return None
    names = [x for x in args[1:] if x and not x.startswith("-")]
    given = [options.get(x) for x in args[1:] if x not in names]
    if len(names) != 1 or len(given) > 1 or None in given:
        return None
    from . import answers

    status: int | None = getattr(answers, args[0])(names[0], **(given[0] or {} if given else {}))
    return status
