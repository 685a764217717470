"""JSON from strangers, read strictly: one object, no duplicate keys, no NaN, no numbers or nesting that only an attack would have."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any, NoReturn

from .errors import ConfigError, safe

LIMIT, WIDE, VALUES = 32 << 20, 64 << 20, 1 << 19
"""No configuration has more bytes, takes more memory as text, or holds more values; an index of 200,000 names has some 20 million."""

CONFIGS = ("config.json", "params.json")
"""Where a model's configuration is written, beside its tensors."""


def config_in(folder: str) -> tuple[dict[str, Any] | None, str]:
    """The configuration in a folder and its path; (None, "") where there is none."""
    place = next((x for name in CONFIGS if os.path.lexists(x := os.path.join(folder, name))), "")
    return (read_json(place), place) if place else (None, "")


def read_json(path: str, times: int = 1) -> dict[str, Any]:
    """The object in a file; anything but a regular file of sensible size is refused unread. `times` raises the limits, for tokenizers."""
    name = safe(path)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{name} is not a regular file")
            if found.st_size > (limit := LIMIT * times):
                raise ConfigError(f"{name} has {found.st_size:,} bytes; a configuration has a few thousand, and at most {limit:,} are read")
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_json(data, name, times)


def parse_json(data: bytes, source: str, times: int = 1) -> dict[str, Any]:
    """The object in these bytes."""
    try:
        return _parsed(data, source, times)
    except ConfigError as error:
        error.hint = error.hint or "a configuration is one JSON object in UTF-8, each key once: a model's config.json or params.json"
        raise


def _parsed(data: bytes, source: str, times: int) -> dict[str, Any]:
    if len(data) > LIMIT * times:
        raise ConfigError(f"{source} is longer than {LIMIT * times:,} bytes; a configuration has a few thousand")
    if sum(map(data.count, (b"{", b"[", b","))) > VALUES * times:
        raise ConfigError(f"{source} holds more than {VALUES * times:,} values; a configuration has a few hundred")
    try:
        text = data.decode()
        if sys.getsizeof(text) > WIDE * times:
            raise _Refused("it is too long for a configuration")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_number, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not UTF-8: byte {error.start}") from None
    except _Refused as error:
        raise ConfigError(f"{source}: {error}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source} is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply to be a configuration") from None
    if not isinstance(value, dict):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a number or a boolean")
        raise ConfigError(f"{source} holds {kind} where an object is expected")
    return value


class _Refused(Exception):
    """What the parser's hooks raise: a message without its file."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {safe(repr(double), 60)} occurs twice")
    return found


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not JSON")


def _number(text: str) -> float:
    if (value := float(text)) in (float("inf"), float("-inf")):
        raise _Refused(f"the number {safe(text, 40)} is beyond what a float holds")
    return value


def _integer(text: str) -> int:
    if len(text) > 40:
        raise _Refused(f"an integer of {len(text):,} digits")
    return int(text)
