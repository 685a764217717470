"""`Record`: frozen, keyword-only data, a tenth of the start-up cost of `dataclasses` (which
compiles source for each class).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """Base of every small data class here: fields are the annotations, in order; values never
    change after construction.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    # the entries of `to_json`, in order; empty means every field
    json_fields: ClassVar[tuple[str, ...]] = ()
    _allowed: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()  # fields without a default
    _checks: ClassVar[bool] = False  # whether it has a `__post_init__` of its own

    def __init_subclass__(cls) -> None:
        fields, kinds = cls.fields, cls.__dict__.get("__annotations__", {})
        if own := [x for x, y in kinds.items() if "ClassVar" not in str(y) and x not in fields]:
            cls.fields = fields = (*fields, *own)
            cls._allowed = frozenset(fields)
        cls._required = frozenset([x for x in fields if not hasattr(cls, x)])
        cls._checks = cls.__post_init__ is not Record.__post_init__

    def __init__(self, **values: Any) -> None:
        if not self._required <= values.keys() <= self._allowed:
            raise self._wrong_fields(values)
        self.__dict__.update(values)
        if self._checks:
            self.__post_init__()

    def _wrong_fields(self, values: Mapping[str, Any]) -> TypeError:
        for name in self.fields:
            if name in self._required and name not in values:
                return TypeError(f"{type(self).__name__} needs {name!r}")
        unknown = sorted(values.keys() - self._allowed)
        return TypeError(f"{type(self).__name__} has no field {unknown[0]!r}")

    def __post_init__(self) -> None:
        """Check the values; called when a record has been made, whoever made it."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot delete {name!r}")

    def values(self) -> tuple[Any, ...]:
        """The fields' values, in field order."""
        return tuple(getattr(self, name) for name in self.fields)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{name: getattr(self, name) for name in self.fields} | changes)

    def extended(self, cls: type[R], **more: Any) -> R:
        """A record of a subclass, with the fields of this one and more."""
        return cls(**{name: getattr(self, name) for name in self.fields} | more)

    def to_json(self) -> dict[str, Any]:
        """Return the record as an object for `json.dumps`, derived from its fields.

        A class with no `json_fields` writes all its fields. Each entry of `json_fields` is one of

        - `"total"`: the field or property `total` under the key `total`;
        - `"model=model.name"`: another key for a field, a property or a dotted path; None anywhere
          on the path gives null;
        - `"*timing"`: the keys of the record or mapping `timing` merged into this object; nothing
          if it is None.

        What no field holds as the contract wants it is a property of the class. Values are encoded
        by `encode_json`.
        """
        return {key: encode_json(value) for key, value in self.json_items()}

    def json_items(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys of `to_json` with their values, not yet encoded."""
        for entry in self.json_fields or self.fields:
            key, _, path = entry.partition("=")
            if entry.startswith("*"):
                yield from (encode_json(_follow(self, entry[1:])) or {}).items()
            else:
                yield key, _follow(self, path or key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.fields)
        return all(x is y or x == y for x, y in pairs)

    def __hash__(self) -> int:
        return hash((type(self), *map(_hashable, self.values())))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name in self.fields}

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields)
        return f"{type(self).__name__}({values})"


R = TypeVar("R", bound=Record)  # in quotes, it would be compiled at each start


def _hashable(value: Any) -> Any:
    """A hashable form of a field's value; equal values have equal forms."""
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(x)) for key, x in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


_INFINITY = float("inf")


def encode_json(value: Any) -> Any:
    """Encode a value for `json.dumps`: records and named tuples as objects, Dims as ints,
    Fractions as floats, iterables as lists.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return (
            value
            if -_INFINITY < value < _INFINITY
            else {_INFINITY: "Infinity", -_INFINITY: "-Infinity"}.get(value, "NaN")
        )
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: encode_json(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return encode_json(value._asdict())
    if isinstance(value, set | frozenset):
        return sorted(map(encode_json, value))
    if isinstance(value, Iterable):
        return [encode_json(item) for item in value]
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _follow(value: Any, path: str) -> Any:
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return value
