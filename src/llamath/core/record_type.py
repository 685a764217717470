"""`Record`: frozen, keyword-only data, a tenth of the start-up cost of `dataclasses` (which compiles source for each class)."""

from __future__ import annotations

from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """Base of every small data class here: fields are the annotations, in order; values never change after construction."""

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = (name for name, kind in cls.__dict__.get("__annotations__", {}).items() if "ClassVar" not in str(kind))
        cls.fields = (*cls.fields, *(name for name in own if name not in cls.fields))

    def __init__(self, **values: Any) -> None:
        for name in self.fields:
            if name not in values and not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} needs {name!r}")
        if unknown := values.keys() - set(self.fields):
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)[0]!r}")
        vars(self).update(values)

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

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self.values() == other.values())

    def __hash__(self) -> int:
        return hash((type(self), *self.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"
