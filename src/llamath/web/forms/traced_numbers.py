"""Numbers of a configuration that keep how everything that is computed of them was computed, and
record what was decided by them.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ...core.expr import Expr, Json, floor_div, product, total
from ...utils.named_tuple import NamedTuple

_MAX_GUARDS = 4096
_MAX_DENOMINATOR = 2**16
"""Other factors are rounded themselves, and their products differently for each number."""


class Guard(NamedTuple):
    """A decision: whether `left operation right` held."""

    operation: str  # <, ==, or | for "right divides left"
    left: Expr
    right: Expr
    held: bool

    def holds(self, **values: int) -> bool:
        """Whether it is decided in the same way for other values."""
        left, right = self.left.evaluate(**values), self.right.evaluate(**values)
        if self.operation == "|":
            return (right != 0 and left % right == 0) == self.held
        return (left < right if self.operation == "<" else left == right) == self.held

    @property
    def variables(self) -> frozenset[str]:
        """The variables that it depends on."""
        return self.left.variables | self.right.variables


class Trace:
    """The decisions made while a model is built from traced numbers."""

    def __init__(self) -> None:
        self.guards: dict[str, Guard] = {}
        self.is_recording = True
        self.kind: type[Traced] = type("TracedNumber", (Traced,), {"trace": self})

    def variable(self, symbol: str, value: int) -> Traced:
        """Return a number of the configuration."""
        found = self.kind.variable(symbol, value)
        assert isinstance(found, Traced)
        return found

    def decide(self, operation: str, left: int, right: int) -> bool:
        """Return what is decided, and record it where other values can change it."""
        a, b = Expr.const(left), Expr.const(right)
        if operation == "|":
            held = int(b) != 0 and int(a) % int(b) == 0
        else:
            held = int(a) < int(b) if operation == "<" else int(a) == int(b)
        if self.is_recording and len(self.guards) < _MAX_GUARDS:
            sides = [_without_symbols(x.to_expression_json()) for x in (a, b)]
            guard = Guard(operation, a, b, held)
            if guard.variables and sides[0] != sides[1]:
                self.guards.setdefault(json.dumps([operation, *sides]), guard)
        return held


def _without_symbols(x: Json) -> Json:
    """Return an expression with definitions in place of their symbols."""
    if not isinstance(x, list):
        return x
    return _without_symbols(x[2]) if x[0] == "as" else [x[0], *map(_without_symbols, x[1:])]


class Traced(Expr):
    """A number that was computed of a configuration's; each trace has its own subclass."""

    trace: ClassVar[Trace]
    divided: tuple[int, int] | None = None  # of a remainder: the dividend and the divisor

    def _like(self, x: int) -> Traced:
        e = Expr.const(x)
        made = self.trace.kind._with_value(int(e), e.terms)
        assert isinstance(made, Traced)
        return made

    def plain(self) -> int:
        return self

    def scaled(self, factor: float) -> int:
        part, whole = float(factor).as_integer_ratio()
        exact: int = self * part // whole
        found = int(int(self) * factor)
        return exact if int(exact) == found and whole < _MAX_DENOMINATOR else found

    def __floordiv__(self, other: Any) -> Any:
        return self._quotient(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._quotient(other, self)

    def _quotient(self, a: Any, b: Any) -> Any:
        if not (isinstance(a, int) and isinstance(b, int)):
            return int(a) // b if isinstance(a, int) else a // int(b)
        if int(b) == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        return self._like(floor_div(a, b))

    def __mod__(self, other: Any) -> Any:
        return self._remainder(self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._remainder(other, self) if isinstance(other, int) else NotImplemented

    def _remainder(self, a: Any, b: Any) -> Any:
        if not isinstance(b, int):
            return int(a) % b
        quotient = self._quotient(a, b)
        found = self._like(total((a, product((-1, b, quotient)))))
        found.divided = (a, b)
        return found

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return product((-1, self))

    def __pos__(self) -> Any:
        return self

    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        if type(exponent) is int and 0 <= exponent < 9 and modulus is None:
            return product((1, *(self,) * exponent))
        return pow(int(self), exponent, modulus)

    def _decide(self, operation: str, left: Any, right: Any) -> bool:
        for x, zero in ((left, right), (right, left)):
            if operation == "==" and isinstance(x, Traced) and x.divided and int(zero) == 0:
                return self.trace.decide("|", *x.divided)
        return self.trace.decide(operation, left, right)

    def __lt__(self, other: Any) -> Any:
        return self._decide("<", self, other) if isinstance(other, int) else int(self) < other

    def __ge__(self, other: Any) -> Any:
        return not self._decide("<", self, other) if isinstance(other, int) else int(self) >= other

    def __gt__(self, other: Any) -> Any:
        return self._decide("<", other, self) if isinstance(other, int) else int(self) > other

    def __le__(self, other: Any) -> Any:
        return not self._decide("<", other, self) if isinstance(other, int) else int(self) <= other

    def __eq__(self, other: Any) -> Any:
        if self is other:
            return True
        return self._decide("==", self, other) if isinstance(other, int) else int(self) == other

    def __ne__(self, other: Any) -> Any:
        return not self == other

    def __bool__(self) -> bool:
        return not self._decide("==", self, 0)

    __hash__ = int.__hash__
