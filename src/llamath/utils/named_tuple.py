"""`NamedTuple`: that of `typing` at a fraction of its start-up cost, which compiles a constructor
and the text of each annotation.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple
    from functools import cache
    from types import FunctionType

    @cache
    def _pattern(n):
        """Return the named tuple whose constructor and attributes all of n fields have."""
        return namedtuple("pattern", [f"x{i}" for i in range(n)])

    class _Maker(type):
        """Makes a named tuple of the annotations of a class, with its methods."""

        def __new__(mcs, name, bases, own):
            own.setdefault("__slots__", ())
            if getattr(bases[0], "_fields", None) == ():
                fields = tuple(own.get("__annotations__", ()))
                own["_field_defaults"] = defaults = {x: own[x] for x in fields if x in own}
                own["_fields"] = own["__match_args__"] = fields
                pattern = _pattern(len(fields))
                own |= {
                    x: getattr(pattern, y) for x, y in zip(fields, pattern._fields, strict=True)
                }
                make = pattern.__new__
                names = {"co_varnames": ("cls", *fields), "co_qualname": f"{name}.__new__"}
                code, given = make.__code__.replace(**names), tuple(defaults.values())
                own["__new__"] = FunctionType(code, make.__globals__, "__new__", given)
            return super().__new__(mcs, name, bases, own)

    class NamedTuple(tuple, metaclass=_Maker):
        """A tuple with named fields."""

        _fields = ()

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changes):
            made = type(self)(*map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"{type(self).__name__} has no field {next(iter(changes))!r}")
            return made

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            values = ", ".join(f"{x}={y!r}" for x, y in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({values})"
