"""A reader of JSON in columns, as the page has it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def from_columns(written: list[Any]) -> Any:
    """Return the value that `llamath.web.server.json_columns` has written."""
    keys, columns = written
    rest = iter(columns)
    fields: dict[tuple[int, int], dict[str, Any]] = {}

    def column() -> dict[str, Any]:
        kind, *tokens = next(rest)
        return {"kind": kind, "tokens": tokens, "at": 0, "made": [], "items": {}}

    def read(x: dict[str, Any]) -> Any:
        token = x["tokens"][min(x["at"], len(x["tokens"]) - 1)]
        x["at"] += 1
        if x["kind"] == 0 or (x["kind"] == 3 and not isinstance(token, list)):
            return token
        if x["kind"] < 3:
            token = [-1 - token, 0, 0] if token < 0 else [token] + [0] * (x["kind"] - 1)
        if len(token) == 3:
            return deepcopy(x["made"][token[0]])
        made = x["made"]
        made.append(None)
        place = len(made) - 1
        if len(token) == 1:
            value: Any = []
            for i in range(token[0]):
                at = i if token[0] <= 2 else -1
                if at not in x["items"]:
                    x["items"][at] = column()
                value.append(read(x["items"][at]))
        else:
            value = {}
            for i, key in enumerate(keys[token[0]]):
                if (token[0], i) not in fields:
                    fields[token[0], i] = column()
                value[key] = read(fields[token[0], i])
        made[place] = value
        return value

    value = read(column())
    assert next(rest, None) is None
    return value
