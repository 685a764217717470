"""JSON in columns, which compress better than rows: the values of each key of objects with the same
keys stand together, and what is equal to an earlier value in its column is its number.

`web/src/lib/json_columns.ts` reads it. The text is `[keys, columns]`: the keys of each kind of
object, and the columns in the order in which the value meets them. A column is a kind and its
tokens, of which the last one is repeated.
"""

from __future__ import annotations

from typing import Any

from ...core.expr import Json

_SCALARS, _ARRAYS, _OBJECTS, _MIXED, _EARLIER = range(5)
"""The kinds of a column, and of its tokens. Those of arrays are their lengths, those of objects the
numbers of their keys, and negative ones are −1 − the place of an equal array or object among those
of the column. Mixed columns have [length], [keys, 0] and [place, 0, 0] beside other values.
"""
_LEAST = 24
"""Smaller arrays and objects, in characters, cost less when they are written again."""
_PAIR = 2
"""Items of arrays up to this length have a column each."""


class _Column:
    def __init__(self) -> None:
        self.tokens: list[tuple[int, Any]] = []
        self.places: dict[int, int] = {}
        self.num_containers = 0
        self.of_items: dict[int, _Column] = {}


def in_columns(value: Any) -> Json:
    """Return a value of JSON in columns."""
    columns = _Columns()
    columns.put(value, columns.new())
    keys: list[Json] = [list(x) for x in columns.keys]
    return [keys, [_written(x) for x in columns.all]]


class _Columns:
    def __init__(self) -> None:
        self.all: list[_Column] = []
        self.keys: dict[tuple[str, ...], tuple[int, list[_Column]]] = {}
        self.numbers: dict[tuple[Any, ...], int] = {}
        """A number for each array or object of other items."""
        self.known: dict[int, tuple[int, int]] = {}
        """The number and the characters of those that the value holds, by `id`."""

    def new(self) -> _Column:
        column = _Column()
        self.all.append(column)
        return column

    def put(self, value: Any, column: _Column) -> None:
        if not isinstance(value, dict | list | tuple):
            column.tokens.append((_SCALARS, value))
            return
        number, size = self._identity(value)
        place = column.places.get(number)
        if place is not None:
            column.tokens.append((_EARLIER, place))
            return
        if size >= _LEAST:
            column.places[number] = column.num_containers
        column.num_containers += 1
        if isinstance(value, dict):
            names = tuple(map(str, value))
            if names not in self.keys:
                self.keys[names] = len(self.keys), []
            kind, fields = self.keys[names]
            column.tokens.append((_OBJECTS, kind))
            for i, x in enumerate(value.values()):
                if i == len(fields):
                    fields.append(self.new())
                self.put(x, fields[i])
            return
        column.tokens.append((_ARRAYS, len(value)))
        for i, x in enumerate(value):
            at = i if len(value) <= _PAIR else -1
            if at not in column.of_items:
                column.of_items[at] = self.new()
            self.put(x, column.of_items[at])

    def _identity(self, value: Any) -> tuple[int, int]:
        found = self.known.get(id(value))
        if found is None:
            parts: list[tuple[type | None, Any]] = []
            size = 2
            is_object = isinstance(value, dict)
            for x in value.values() if is_object else value:
                if isinstance(x, dict | list | tuple):
                    number, own = self._identity(x)
                    parts.append((None, number))
                else:
                    parts.append((type(x), x))
                    own = len(x) + 2 if isinstance(x, str) else 4
                size += own + 1
            names = tuple(map(str, value)) if is_object else None
            size += sum(len(x) + 3 for x in names or ())
            number = self.numbers.setdefault((names, *parts), len(self.numbers))
            found = self.known[id(value)] = number, size
        return found


def _written(column: _Column) -> Json:
    kinds = {kind for kind, _ in column.tokens} - {_EARLIER}
    tokens: list[Any]
    if len(kinds) == 1:
        [kind] = kinds
        tokens = [-1 - x if of == _EARLIER else x for of, x in column.tokens]
    else:
        kind = _MIXED
        tokens = [
            x if of == _SCALARS else [x, *[0] * (2 if of == _EARLIER else of - _ARRAYS)]
            for of, x in column.tokens
        ]
    while len(tokens) > 1 and tokens[-1] == tokens[-2] and type(tokens[-1]) is type(tokens[-2]):
        tokens.pop()
    return [kind, *tokens]
