"""`NamedTuple`: that of `typing` at less than half of its start-up cost, which compiles the text of
each annotation).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Maker(type):
        """Makes a named tuple of the annotations of a class, with its methods."""

        def __new__(mcs, name, bases, own):
            if not bases:
                return super().__new__(mcs, name, bases, own)
            fields = own.pop("__annotations__", {})
            defaults = [own.pop(x) for x in fields if x in own]
            made = namedtuple(name, fields, defaults=defaults, module=own.pop("__module__"))
            for key, value in own.items():
                setattr(made, key, value)
            made.__annotations__ = fields
            return made

    class NamedTuple(metaclass=_Maker):
        """A tuple with named fields."""
