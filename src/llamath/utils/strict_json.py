"""Strict parsing of untrusted JSON: one object, no duplicate keys, and limits on size, numbers and
nesting.

NaN and infinity are refused, except in a model's configuration, where transformers accepts them; a
dimension is never read from one.
"""

from __future__ import annotations

import gc
import json
import os
import stat
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .access import is_restricted, open_file
from .errors import ConfigError, safe

MAX_BYTES, MAX_TEXT_MEMORY, VALUES = 32 << 20, 64 << 20, 1 << 19
"""Limits of a file's bytes, of its memory as text, and of its number of values; an index of
200,000 names has some 20 million bytes."""

LONG_INDEX, PIECE_BYTES = 1 << 16, 1 << 16
"""Size above which an index is parsed in pieces, and the minimum size of a piece."""
_SPACE, _PRINTABLE = " \t\r\n", bytes(range(32, 256))

CONFIG_FILES = ("config.json", "params.json")
"""Names of a model's configuration file."""


def read_json(path: str, times: int = 1, *, finite: bool = True) -> dict[str, Any]:
    """Parse the object in a regular file of limited size; `times` raises the limits, for
    tokenizers.
    """
    name = safe(path)
    try:
        with open(open_file(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            stat_result = os.fstat(file.fileno())
            if not stat.S_ISREG(stat_result.st_mode):
                raise ConfigError(f"{name} is not a regular file")
            if stat_result.st_size > (limit := MAX_BYTES * times):
                raise ConfigError(
                    f"{name} has {stat_result.st_size:,} bytes; a configuration has a few "
                    f"thousand, and at most {limit:,} are read"
                )
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    return parse_json(data, name, times, finite=finite)


def parse_tokenizer(data: bytes, source: str) -> dict[str, Any]:
    """Parse the object in a tokenizer's file, which may have a million values.

    Its numbers keep the limits of Python alone. The collector of reference cycles pauses: it would
    look through all values again and again.
    """
    pauses = gc.isenabled()
    gc.disable()
    try:
        return _parse(data, source, 8, True, sys.maxsize, PIECE_BYTES, {})
    except ConfigError as error:
        error.hint = error.hint or (
            "a tokenizer's file is one JSON object in UTF-8, each key "
            "once: compare it with the publisher's"
        )
        raise
    finally:
        if pauses:
            gc.enable()


def parse_json(
    data: bytes,
    source: str,
    times: int = 1,
    *,
    finite: bool = True,
    long_index: int = LONG_INDEX,
    piece_bytes: int = PIECE_BYTES,
) -> dict[str, Any]:
    """Parse the object in these bytes; an index of more than `long_index` bytes is parsed in pieces
    of at least `piece_bytes`.

    Unless `finite`, the words NaN, Infinity and -Infinity are numbers.
    """
    try:
        return _parse(data, source, times, finite, long_index, piece_bytes)
    except ConfigError as error:
        from .file_diagnosis import HEAD_BYTES, diagnose

        if found := diagnose(data[:HEAD_BYTES], source, len(data), "JSON"):
            raise ConfigError(found.message, hint=found.hint) from None
        error.hint = error.hint or (
            "a configuration is one JSON object in UTF-8, each key once: "
            "a model's config.json or params.json"
        )
        raise


def _parse(
    data: bytes,
    source: str,
    times: int,
    finite: bool,
    long_index: int,
    piece_bytes: int,
    numbers: _Numbers | None = None,
) -> dict[str, Any]:
    if len(data) > MAX_BYTES * times:
        raise ConfigError(
            f"{source} is longer than {MAX_BYTES * times:,} bytes; a configuration "
            "has a few thousand"
        )
    try:
        value = (
            _parse_long_index(data, long_index, piece_bytes)
            if len(data) > long_index and data.isascii()
            else None
        )
        if value is None:
            if sum(map(data.count, (b"{", b"[", b","))) > VALUES * times:
                raise ConfigError(
                    f"{source} holds more than {VALUES * times:,} values; a "
                    "configuration has a few hundred"
                )
            text = data.decode()
            if text.startswith("\ufeff"):
                raise _JsonError(
                    "not JSON: it begins with a byte order mark; save it as UTF-8 without one"
                )
            if sys.getsizeof(text) > MAX_TEXT_MEMORY * times:
                raise _JsonError("it is too long for a configuration")
            value = _load_strict(text, _object_of_pairs, finite, numbers)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not UTF-8: byte {error.start}") from None
    except _JsonError as error:
        raise ConfigError(f"{source}: {error}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{source} is not JSON: {error.msg}, line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply to be a configuration") from None
    if not isinstance(value, dict):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(
            type(value), "a number or a boolean"
        )
        raise ConfigError(f"{source} holds {kind} where an object is expected")
    return value


_Numbers = dict[str, Any]
"""The parsers of numbers, as arguments of `json.loads`."""


def _load_strict(
    text: str,
    unique: Callable[[list[tuple[str, Any]]], Any],
    finite: bool = True,
    numbers: _Numbers | None = None,
) -> Any:
    checked: _Numbers = (
        {"parse_float": _parse_float, "parse_int": _parse_integer} if numbers is None else numbers
    )
    return json.loads(
        text,
        object_pairs_hook=unique,
        parse_constant=_reject_constant if finite else float,
        **checked,
    )


def _parse_long_index(data: bytes, max_around: int, piece_bytes: int) -> Any:
    """Parse a long index in half the time and memory if its last object has only short strings;
    None for other text.

    Without a backslash every quote begins or ends a string, so the strings of the object are found
    by counting quotes. The text around it is parsed as usual, with a key in its place that cannot
    occur in the text.
    """
    start = data.rfind(b"{")
    end = data.find(b"}", start)
    if (
        b"\\" in data
        or start < 0
        or end < 0
        or data.count(b'"', 0, start) % 2
        or (index := _parse_string_pairs(data, start + 1, end, piece_bytes)) is None
    ):
        return None
    around = data[:start] + rb'{"\u0000":0}' + data[end + 1 :]
    if len(around) > max_around:
        return None
    try:
        return _load_strict(
            around.decode(),
            lambda pairs: index if pairs == [("\0", 0)] else _object_of_pairs(pairs),
        )
    except (_JsonError, ValueError, RecursionError):
        return None  # the whole is parsed again, for an error with its position


def _parse_string_pairs(data: bytes, at: int, end: int, piece_bytes: int) -> dict[str, str] | None:
    """Return the keys and values of an object of strings without escapes or duplicate keys; None
    for any other object.
    """
    merged: dict[str, str] = {}
    known: dict[str, str] = {}
    n = 0
    while at < end:
        stop = data.find(b'",', at + piece_bytes, end) + 2
        last = stop < 2 or stop == end
        pieces = data[at : end if last else stop].decode("ascii").split('"')
        names, colons, values, commas = pieces[1::4], pieces[2::4], pieces[3::4], pieces[4:-1:4]
        around = [
            x.strip(_SPACE) for x in (*pieces[:1], *colons[:1], *(commas[:1] or ","), *pieces[-1:])
        ]
        if len(pieces) % 4 != 1 or around != ["", ":", ",", "" if last else ","] or n > VALUES:
            return None
        if colons.count(colons[0]) < len(colons) or commas.count(commas[0] if commas else "") < len(
            commas
        ):
            return None
        if "".join(names).encode().translate(None, _PRINTABLE):
            return None
        merged.update(zip(names, map(known.setdefault, values, values), strict=True))
        n += len(names)
        at = end if last else stop
    return (
        merged
        if len(merged) == n < VALUES and not "".join(known).encode().translate(None, _PRINTABLE)
        else None
    )


class _JsonError(Exception):
    """An error of the parser's hooks, without the name of the file."""


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    merged = dict(pairs)
    if len(merged) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _JsonError(
            "a key occurs twice"
            if is_restricted()
            else f"the key {safe(repr(double), 60)} occurs twice"
        )
    return merged


def _reject_constant(name: str) -> NoReturn:
    raise _JsonError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    if (value := float(text)) in (float("inf"), float("-inf")):
        raise _JsonError(f"the number {safe(text, 40)} is out of the range of a float")
    return value


def _parse_integer(text: str) -> int:
    if len(text) > 40:
        raise _JsonError(f"an integer of {len(text):,} digits")
    return int(text)
