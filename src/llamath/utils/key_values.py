"""`parse_key_values`: text such as `tp=8,pp=4,zero=3` as keys and values, with a reader for the
values of each key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .errors import ArgumentError, nearest, safe

Reader = Callable[[str], Any]


def parse_key_values(text: str, argument: str, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Return the keys and values of `key=value,key=value`; a reader raises ValueError for a
    value that it cannot read.
    """
    made: dict[str, Any] = {}
    for part in text.replace("×", ",").split(",") if text else ():
        name, equals, value = (x.strip() for x in part.partition("="))
        if name not in readers:
            near = nearest(name, readers)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(readers)}"
            raise ArgumentError(argument, f": unknown key {safe(repr(name), 40)}", hint=hint)
        if name in made:
            raise ArgumentError(argument, f": {name} is given twice")
        try:
            if not equals:
                raise ValueError("a value is missing")
            made[name] = readers[name](value)
        except ValueError as error:
            hint = f"like {name}=…; it takes {', '.join(readers)}"
            raise ArgumentError(
                argument, f": {name}={safe(value, 40)}: {error}", hint=hint
            ) from None
    return made


def integer(least: int = 1, most: int = 10**9 - 1) -> Reader:
    """Return a reader of integers."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,20}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(f"expected an integer from {least:,} to {most:,}")
        return int(text)

    return read


def number(least: float, most: float) -> Reader:
    """Return a reader of real numbers."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"expected a number from {least:g} to {most:g}")
        return value

    return read
