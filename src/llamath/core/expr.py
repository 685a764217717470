"""`Expr`: an int that knows how it was computed, so that shapes, totals and bytes have formulas.

`Expr("H", 32) * Expr("h", 128)` is 4096 and is written `H·h`. Inside, an Expr is a polynomial over
atoms: letters (dimensions of the model), variables (batch size, tokens, …, whose values can be
changed with `at`), and functions of expressions, such as the minimum or a rounded quotient. Sums
and products of Exprs stay exact and readable; a power with a float is a `Power`; any other
arithmetic gives a plain int.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, overload

from ..utils.named_tuple import NamedTuple
from ..utils.number_marks import FactorUnlessOne, active_marks, is_marking, mark, unmarked

Json = int | str | list[Any]


class Letter(NamedTuple):
    """A dimension of the model: a symbol with its value."""

    symbol: str
    value: int


class Factor(Letter):
    """A number that is written as a factor of its own, like the 2 bytes of an element."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether they are the same number at all dimensions."""
        return tuple.__eq__(self, other) and _form_of(self[1]) == _form_of(other[1])  # type: ignore[index]

    __hash__ = tuple.__hash__


class Variable(NamedTuple):
    """A quantity that is chosen for each pass, like the batch size: a symbol with its current
    value.
    """

    symbol: str
    value: int


class Call(NamedTuple):
    """A function of expressions, one of `_FUNCTIONS`."""

    symbol: str
    value: int
    numbers: str
    function: str
    arguments: tuple[Expr, ...]


class Alias(NamedTuple):
    """A short symbol for an expression, which keeps formulas readable."""

    symbol: str
    value: int
    definition: Expr


class Group(NamedTuple):
    """An expression in brackets, which is not multiplied out."""

    symbol: str
    value: int
    numbers: str
    content: Expr


def _form_of(x: int) -> Json:
    return x.to_form() if type(x) is Number else int(x)


Atom = Letter | Variable | Call | Alias | Group
Monomial = tuple[Atom, ...]


def _round_div(a: int, b: int) -> int:
    return (2 * a + b) // (2 * b)


def _routed(size: int, unit: int, missed: int, experts: int, tokens: int, most: int) -> int:
    if tokens >= most:
        return _round_div(size, unit)
    return _round_div(size * (experts**tokens - missed**tokens), unit * experts**tokens)


_FUNCTIONS: Mapping[str, tuple[Callable[..., int], str]] = {
    "min": (min, "min({}, {})"),
    "max": (max, "max({}, {})"),
    "floor": (lambda a, b: a // b, "⌊{} / {}⌋"),
    "ceil": (lambda a, b: -(-a // b), "⌈{} / {}⌉"),
    "round": (_round_div, "round({} / {})"),
    "log2": (lambda a: (a - 1).bit_length(), "⌈log₂ {}⌉"),
    "routed": (_routed, "round({} / {}·(1 − ({} / {})^{}))"),
}
"""Name in JSON -> what it computes, and how it is written."""
_LARGEST_NUMBER = 2**53 - 1
"""Larger integers are strings in JSON, since programs in JavaScript would round them."""


class _Written(int):
    """An int whose text carries a mark while page data are made."""

    def __str__(self) -> str:
        return mark(int.__repr__(self), "d", self)

    def __format__(self, spec: str) -> str:
        own = int.__format__(self, spec)
        return mark(own, spec or "d", self) if spec in ("", "d", ",") else own


class Expr(_Written):
    """An int with an expression; arithmetic and comparison are those of int."""

    terms: Mapping[Monomial, int]

    def __new__(cls, symbol: str, value: int) -> Expr:
        if type(value) is not int and type(value) is not Expr and isinstance(value, Expr):
            return value.alias(symbol)  # of a subclass, which keeps how it was computed
        return cls.of({(Letter(symbol, int(value)),): 1})

    @classmethod
    def of(cls, terms: Mapping[Monomial, int]) -> Expr:
        """The Expr of a polynomial: coefficients by monomial."""
        kept = _without_zeros(terms)
        total = 0
        for monomial, k in kept.items():
            size = int(k)
            for atom in monomial:
                size *= atom[1]
            total += size
        return cls._with_value(total, kept)

    @classmethod
    def _with_value(cls, value: int, terms: Mapping[Monomial, int]) -> Expr:
        self = int.__new__(cls, value)
        self.terms = terms
        return self

    @classmethod
    def const(cls, value: int) -> Expr:
        """A number without a letter."""
        if isinstance(value, Expr):
            return value
        number = value if type(value) is Number else int(value)
        return cls._with_value(number, {(): number} if number else {})

    @classmethod
    def variable(cls, symbol: str, value: int) -> Expr:
        """A variable with its current value."""
        kept = value if type(value) is Number else int(value)
        return cls.of({(Variable(symbol, kept),): 1})

    @classmethod
    def factor(cls, value: int) -> Expr:
        """A number that is not multiplied with others: `Expr.factor(2) * x * Expr.factor(2)` is
        written `2·x·2`.
        """
        return cls.of({(Factor(str(int(value)), value),) if value != 1 else (): 1})

    def in_brackets(self) -> Expr:
        """Return a sum as one factor that is not multiplied out: `(r + p)·T`."""
        if len(self.terms) < 2:
            return self
        return type(self).of(
            {(Group(f"({self.symbol})", int(self), f"({self.numbers})", self),): 1}
        )

    def with_symbol(self, symbol: str) -> Expr:
        """Return this value as a dimension with its own letter."""
        return Expr(symbol, self)

    def plain(self) -> int:
        """Return the number without its formula, where that is not shown; subclasses keep it."""
        return int(self)

    def scaled(self, factor: float) -> int:
        """Return the whole part of factor times this number, without its formula."""
        return int(self * factor)

    def alias(self, symbol: str) -> Expr:
        """Return this expression as one that is written as `symbol`; it still depends on its
        variables.
        """
        return type(self).of({(Alias(symbol, int(self), self),): 1})

    def written_as_number(self) -> Expr:
        """Return this expression as one that is written as its value."""
        return self.alias(str(int(self))) if self.terms.keys() - {()} else self

    @property
    def symbol(self) -> str:
        """The expression in letters: `H·h`, `2·F`, `H·h + 2·K·h`."""
        return self._text("_symbol", _symbol)

    @property
    def numbers(self) -> str:
        """Write the expression with values for letters: `32·128`."""
        return self._text("_numbers", _numbers)

    def _text(self, name: str, show: Callable[[Atom], str]) -> str:
        """Return how the terms are written, which is kept; with marks, as long as these are."""
        marks = active_marks()
        if marks is not None:
            return marks.text_of(self, name, lambda: _format(self.terms, show))
        kept: str | None = vars(self).get(name)
        if kept is None:
            kept = vars(self)[name] = _format(self.terms, show)
        return kept

    @property
    def atoms(self) -> dict[str, int]:
        """The letters, variables and aliases in it, with their values."""
        return {atom.symbol: atom.value for atom in self._leaves()}

    @property
    def letters(self) -> dict[str, int]:
        """The dimensions in it, with their values; not those that an alias stands for."""
        found: dict[str, int] = {}
        for monomial in self.terms:
            for atom in monomial:
                if type(atom) is Letter:
                    found[atom.symbol] = atom.value
                elif isinstance(atom, Call):
                    for argument in atom.arguments:
                        found |= argument.letters
                elif isinstance(atom, Group):
                    found |= _content(atom).letters
        return found

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The symbols of all letters in it, also of those that an alias stands for."""
        found = set[str]()
        for monomial, k in self.terms.items():
            if type(k) is Number:
                found |= k.symbols
            for atom in monomial:
                if isinstance(atom, Letter):
                    found.add(atom.symbol)
                elif isinstance(atom, Call):
                    found.update(*(x.symbols for x in atom.arguments))
                elif isinstance(atom, (Alias, Group)):
                    found |= _content(atom).symbols
        return frozenset(found)

    @cached_property
    def variables(self) -> frozenset[str]:
        """The symbols of the variables in it."""
        found = {atom.symbol for atom in self._leaves() if isinstance(atom, Variable)}
        return frozenset(
            found.union(
                *(atom.definition.variables for atom in self._leaves() if isinstance(atom, Alias))
            )
        )

    def _leaves(self) -> Iterator[Letter | Variable | Alias]:
        for monomial in self.terms:
            for atom in monomial:
                if isinstance(atom, Call):
                    for argument in atom.arguments:
                        yield from argument._leaves()
                elif isinstance(atom, Group):
                    yield from _content(atom)._leaves()
                elif not isinstance(atom, Factor):
                    yield atom

    @property
    def factors(self) -> tuple[Expr, ...]:
        """The letters of a product of letters."""
        ((monomial, k),) = self.terms.items()
        assert k == 1, f"{self.symbol} is not a product of letters"
        return tuple(Expr.of({(atom,): 1}) for atom in monomial)

    def at(self, **values: int) -> Expr:
        """Return the same expression with other values of its variables, `x.at(B=4, T=512)`, or
        with expressions in their place.
        """
        if not _varies(self) or not self.variables & values.keys():
            return self
        return total(
            product((k, *(_substitute(atom, values) for atom in monomial)))
            for monomial, k in self.terms.items()
        )

    def with_letters(self, values: Mapping[str, int]) -> Expr:
        """Return the same expression with other values or expressions in place of letters:
        numbers give letters with these values.
        """
        if self.symbols.isdisjoint(values):
            return self
        return total(
            product((k, *(_replace_letter(atom, values) for atom in monomial)))
            for monomial, k in self.terms.items()
        )

    def evaluate(self, **values: int) -> int:
        """Return the value for other values of the variables, without the expression: much
        faster than `at`.
        """
        result = 0
        for k, names, rest in self._compiled:
            for name, value in names:
                k *= values.get(name, value)
            for atom in rest:
                k *= _evaluate(atom, values)
            result += k
        return result

    @cached_property
    def _compiled(self) -> list[tuple[int, list[Variable], list[Call | Alias | Group]]]:
        """The terms, each as the product of its numbers, its variables and its other atoms."""
        found = []
        for monomial, k in self.terms.items():
            others = [x for x in monomial if not isinstance(x, Letter)]
            variables, rest = (
                [x for x in others if isinstance(x, Variable)],
                [x for x in others if not isinstance(x, Variable)],
            )
            found.append(
                (
                    prod((int(k), *(x.value for x in monomial if isinstance(x, Letter)))),
                    variables,
                    rest,
                )
            )
        return found

    def exact_div(self, part: int) -> Expr:
        """Return self / part, which leaves no remainder: in letters where they cancel, as a
        quotient of variables, otherwise as a number.
        """
        divisor = Expr.const(part)
        if self.terms == divisor.terms:
            return Expr.const(1)
        if len(divisor.terms) == 1:
            ((monomial, k),) = divisor.terms.items()
            quotients = [(_without(own, monomial), n) for own, n in self.terms.items()]
            if all(rest is not None and n % k == 0 for rest, n in quotients):
                return Expr.of({rest: n // k for rest, n in quotients if rest is not None})
        for own in self.terms:
            rest = _without(own, next(iter(divisor.terms)))
            if rest is not None and not (self - (quotient := Expr.of({rest: 1})) * divisor).terms:
                return quotient
        return _call("floor", self, divisor)

    def to_expression_json(self) -> Json:
        """Return the expression for a program: a number, a variable's name, or a list.

        `["let", letter, value]` is a letter, `["as", symbol, definition]` an expression with a
        short symbol; `[function, …]` is `+` or `*` of any number of expressions, or `min`, `max`,
        `floor`, `ceil`, `round` of two, `log2` of one, or `routed` of six. Large numbers are
        strings.
        """
        terms = []
        for monomial, k in self.terms.items():
            number: list[Any] = [_number_json(k)] if k != 1 or not monomial else []
            if monomial and type(k) is Number:
                number = [FactorUnlessOne(k)]
            terms.append(_operation("*", [*number, *map(_atom_json, monomial)]))
        return _operation("+", terms) if terms else 0

    def to_form(self) -> Json:
        """Return the expression at the present values of its variables as one of letters, each
        with its value.
        """
        kept: Json | None = vars(self).get("_form")
        if kept is None:
            terms = []
            for monomial, k in self.terms.items():
                number = [_number_form(k)] if k != 1 or not monomial else []
                terms.append(_operation("*", [*number, *map(_atom_form, monomial)]))
            kept = vars(self)["_form"] = _operation("+", terms) if terms else 0
        return kept

    def __mul__(self, other: int) -> Expr:
        return product((self, other)) if isinstance(other, int) else NotImplemented

    def __rmul__(self, other: int) -> Expr:
        return product((other, self)) if isinstance(other, int) else NotImplemented

    def __add__(self, other: int) -> Expr:
        return total((self, other)) if isinstance(other, int) else NotImplemented

    def __radd__(self, other: int) -> Expr:
        return total((other, self)) if isinstance(other, int) else NotImplemented

    def __sub__(self, other: int) -> Expr:
        return total((self, product((-1, other)))) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: int) -> Expr:
        return total((other, product((-1, self)))) if isinstance(other, int) else NotImplemented

    def __floordiv__(self, other: int) -> int:
        return as_number(self) // other if is_marking() else int.__floordiv__(self, other)

    def __mod__(self, other: int) -> int:
        return as_number(self) % other if is_marking() else int.__mod__(self, other)

    def __neg__(self) -> int:
        return -as_number(self) if is_marking() else int.__neg__(self)

    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        value = pow(int(self), exponent, modulus)
        keeps = isinstance(exponent, float) and self.letters
        return Power(value, self, exponent) if keeps else value

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Expr.of, (self.terms,)

    def __repr__(self) -> str:
        return f"Expr({self.symbol!r}, {int(self)})"

    __hash__ = int.__hash__


class Number(_Written):
    """An int that keeps what it was computed from and is written as a number; only in texts with
    marks.
    """

    symbols = frozenset(("",))
    function: str
    arguments: tuple[int, ...]

    def __new__(cls, value: int, function: str, *arguments: int) -> Number:
        self = int.__new__(cls, value)
        self.function, self.arguments = function, arguments
        return self

    def __add__(self, other: int) -> int:
        if type(other) not in _PLAIN and (isinstance(other, Expr) or not isinstance(other, int)):
            return NotImplemented
        return Number(int(self) + int(other), "+", self, other) if other else self

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return self + -other

    def __rsub__(self, other: int) -> int:
        return other + -self

    def __mul__(self, other: int) -> int:
        if type(other) not in _PLAIN and (isinstance(other, Expr) or not isinstance(other, int)):
            return NotImplemented
        if not other:
            return 0
        return self if other == 1 else Number(int(self) * int(other), "*", self, other)

    __rmul__ = __mul__

    def __neg__(self) -> int:
        return self * -1

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    def __floordiv__(self, other: int) -> int:
        exact = type(other) is int and other == 1
        return self if exact else Number(int(self) // int(other), "floor", self, other)

    def __rfloordiv__(self, other: int) -> int:
        return Number(int(other) // int(self), "floor", other, self)

    def __mod__(self, other: int) -> int:
        return self - other * (self // other)

    def to_form(self) -> Json:
        """Return the expression of letters that it is the value of."""
        kept: Json | None = vars(self).get("_form")
        if kept is None:
            kept = vars(self)["_form"] = self._form_of()
        return kept

    def _form_of(self) -> Json:
        if self.function != "+":
            return [self.function, *map(_number_form, self.arguments)]
        times: dict[int, tuple[int, int]] = {}  # a sum may be long
        left: list[int] = [self]
        while left:
            x = left.pop()
            if type(x) is Number and x.function == "+" and "_form" not in vars(x):
                left += reversed(x.arguments)
            else:
                times[id(x)] = (x, times.get(id(x), (x, 0))[1] + 1)
        terms = [(_number_form(x), n) for x, n in times.values()]
        return ["+", *(x if n == 1 else ["*", n, x] for x, n in terms)]

    __hash__ = int.__hash__


_PLAIN = (int, Number)


class Power(float):
    """A number that follows from dimensions: `factor · base ^ exponent`, such as 1 / √h.

    It is computed as the float that it is; products and quotients with numbers keep the expression.
    """

    base: Expr
    exponent: float
    factor: float

    def __new__(cls, value: float, base: Expr, exponent: float = 1.0, factor: float = 1.0) -> Power:
        self = float.__new__(cls, value)
        self.base, self.exponent, self.factor = base, exponent, factor
        return self

    def __mul__(self, other: float) -> Power:
        return Power(float(self) * other, self.base, self.exponent, self.factor * other)

    def __rmul__(self, other: float) -> Power:
        return Power(other * float(self), self.base, self.exponent, other * self.factor)

    def __rtruediv__(self, other: float) -> Power:
        return Power(other / float(self), self.base, -self.exponent, other / self.factor)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Power, (float(self), self.base, self.exponent, self.factor)


def written_factor(x: float, digits: int = 6) -> str:
    """Return a number to six digits; of a power of a dimension, with marks, one that follows it."""
    own = f"{float(x):.{digits}g}"
    if not isinstance(x, Power):
        return own
    more = () if digits == 6 else (str(digits),)
    return mark(own, "power", x.base, repr(x.factor), repr(x.exponent), *more)


def _without_zeros(terms: Mapping[Monomial, int]) -> Mapping[Monomial, int]:
    if all(terms.values()):
        return terms
    return {monomial: k for monomial, k in terms.items() if k}


def compute(function: str, values: Sequence[int]) -> int:
    """Return the value of a function by its name in JSON."""
    if function in ("+", "*"):
        return sum(values) if function == "+" else prod(values)
    return _FUNCTIONS[function][0](*values)


def total(values: Iterable[int]) -> Expr:
    """The sum of Exprs and ints, like terms collected in order of first appearance; of a subclass
    of Expr if one of them is.
    """
    number, kind = 0, Expr
    terms: dict[Monomial, int] = {}
    keys: dict[Monomial, Monomial] = {}
    for value in values:
        if type(value) is int:
            number += value
            terms[()] = terms.get((), 0) + value
            continue
        number += int(value)
        if type(value) is not Expr:
            kind = _kind_of(value)
        for monomial, k in (
            value.terms.items()
            if isinstance(value, Expr)
            else (((), value if type(value) is Number else int(value)),)
        ):
            if monomial in terms:
                terms[monomial] += k
                continue
            if len(monomial) > 1:
                monomial = keys.setdefault(tuple(sorted(monomial)), monomial)
            terms[monomial] = terms.get(monomial, 0) + k
    return kind._with_value(number, _without_zeros(terms))


def product(values: Iterable[int]) -> Expr:
    """The product of Exprs and ints; of a subclass of Expr if one of them is."""
    coefficient, number, kind = 1, 1, Expr
    monomial: Monomial = ()  # the product so far, while it has one term
    terms: dict[Monomial, int] | None = None
    for value in values:
        if type(value) is int:
            number, coefficient = number * value, coefficient * value
            continue
        number *= int(value)
        if type(value) is not Expr:
            kind = _kind_of(value)
        if not isinstance(value, Expr):
            coefficient *= value
        elif terms is None and len(value.terms) == 1:
            for more, k in value.terms.items():
                coefficient, monomial = coefficient * k, monomial + more
        else:
            terms = _product({monomial: 1} if terms is None else terms, value.terms)
    if terms is None and coefficient:
        return kind._with_value(number, {monomial: coefficient})
    if not coefficient:
        return kind._with_value(0, {})
    terms = {monomial: coefficient * k for monomial, k in (terms or {}).items()}
    return kind._with_value(number, _without_zeros(terms))


def _kind_of(*values: int) -> type[Expr]:
    """The subclass of Expr that one of these values has; Expr if none has one."""
    return next((type(x) for x in values if isinstance(x, Expr) and type(x) is not Expr), Expr)


@overload
def minimum(a: Expr, b: int) -> Expr: ...
@overload
def minimum(a: int, b: Expr) -> Expr: ...
@overload
def minimum(a: int, b: int) -> int: ...
def minimum(a: int, b: int) -> int:
    """The smaller of two expressions; the expression itself where no variable can change which
    one it is.
    """
    return (
        _extreme("min", Expr.const(a), Expr.const(b))
        if isinstance(a, Expr) or isinstance(b, Expr)
        else min(a, b)
    )


@overload
def maximum(a: Expr, b: int) -> Expr: ...
@overload
def maximum(a: int, b: Expr) -> Expr: ...
@overload
def maximum(a: int, b: int) -> int: ...
def maximum(a: int, b: int) -> int:
    """The larger of two expressions; the expression itself where no variable can change which
    one it is.
    """
    return (
        _extreme("max", Expr.const(a), Expr.const(b))
        if isinstance(a, Expr) or isinstance(b, Expr)
        else max(a, b)
    )


@overload
def floor_div(a: Expr, b: int) -> Expr: ...
@overload
def floor_div(a: int, b: Expr) -> Expr: ...
@overload
def floor_div(a: int, b: int) -> int: ...
def floor_div(a: int, b: int) -> int:
    """⌊a / b⌋; a number where there are no variables, plain if both numbers are."""
    return _divided("floor", a, b) if isinstance(a, Expr) or isinstance(b, Expr) else a // b


@overload
def ceil_div(a: Expr, b: int) -> Expr: ...
@overload
def ceil_div(a: int, b: Expr) -> Expr: ...
@overload
def ceil_div(a: int, b: int) -> int: ...
def ceil_div(a: int, b: int) -> int:
    """⌈a / b⌉; a number where there are no variables, plain if both numbers are."""
    return _divided("ceil", a, b) if isinstance(a, Expr) or isinstance(b, Expr) else -(-a // b)


def written_ceil_div(a: int, b: int) -> Expr:
    """⌈a / b⌉, written as a quotient even if there are no variables, unless b is 1."""
    return (
        Expr.const(a)
        if type(b) is int and b == 1
        else _written("ceil", Expr.const(a), Expr.const(b))
    )


def written_floor_div(a: int, b: int) -> Expr:
    """⌊a / b⌋, written as a quotient even if there are no variables."""
    return _written("floor", Expr.const(a), Expr.const(b))


def ceil_log2(a: Expr) -> Expr:
    """⌈log₂ a⌉, the bits that so many different numbers need; a number where there are no
    variables.
    """
    return _call("log2", a)


def round_div(a: int, b: int) -> Expr:
    """The integer nearest to a / b, halves rounded up; a number where there are no variables."""
    return (
        _divided("round", a, b)
        if isinstance(a, Expr) or isinstance(b, Expr)
        else Expr.const(_round_div(a, b))
    )


def routed_bytes(size: int, unit: int, missed: int, experts: int, tokens: int, most: int) -> Expr:
    """The expected part of size / unit bytes of experts that tokens use, if each one misses
    `missed` of the experts, rounded.

    It is everything for `most` tokens and more.
    """
    return _call("routed", *map(Expr.const, (size, unit, missed, experts, tokens, most)))


def _divided(function: str, a: int, b: int) -> Expr:
    a, b = Expr.const(a), Expr.const(b)
    if b.terms.keys() == {()} and all(int(k) % int(b) == 0 for k in a.terms.values()):
        terms = {monomial: k // b.terms[()] for monomial, k in a.terms.items()}
        return _kind_of(a, b)._with_value(int(a) // int(b), terms)
    return _call(function, a, b)


def _extreme(function: str, a: Expr, b: Expr) -> Expr:
    if is_marking() and (a.symbols or b.symbols) and not (_varies(a) or _varies(b)):
        return _call(function, a, b)  # which one it is follows the letters
    larger, smaller = (a, b) if _never_less(a, b) else (b, a)
    if not _never_less(larger, smaller):
        return _call(function, a, b)
    return smaller if function == "min" else larger


def _never_less(a: Expr, b: Expr) -> bool:
    """Whether a ≥ b for all values of the variables, which are not negative."""
    coefficients: dict[Monomial, int] = {}
    for monomial, k in (a - b).terms.items():
        rest = []
        for atom in monomial:
            if isinstance(atom, Letter):
                k *= atom.value
            else:
                rest.append(atom)
        key = tuple(sorted(rest))
        coefficients[key] = coefficients.get(key, 0) + k
    return all(k >= 0 for k in coefficients.values())


def _call(function: str, *arguments: Expr) -> Expr:
    if any(map(_varies, arguments)):
        return _written(function, *arguments)
    value = _FUNCTIONS[function][0](*map(int, arguments))
    if is_marking() and any(x.symbols for x in arguments):
        return Expr.const(Number(value, function, *arguments))
    return Expr.const(value)


def as_number(x: int) -> int:
    """Return an int; with marks, one that keeps its expression where that has letters."""
    if type(x) is int or type(x) is Number:
        return x
    return Number(int(x), "+", x) if isinstance(x, Expr) and is_marking() and x.symbols else int(x)


def larger(a: int, b: int) -> int:
    """Return the larger number; with marks, the choice is kept."""
    kept = is_marking() and any(isinstance(x, (Expr, Number)) and x.symbols for x in (a, b))
    return Number(max(int(a), int(b)), "max", a, b) if kept else max(a, b)


def choose_if_less(a: int, b: int, less: int, else_: int) -> int:
    """Return `less` if a < b, and `else_` otherwise; with marks, the choice is kept."""
    value = less if a < b else else_
    kept = is_marking() and any(isinstance(x, (Expr, Number)) and x.symbols for x in (a, b))
    return Number(int(value), "choose", a, b, less, else_) if kept else value


def _varies(x: Expr) -> bool:
    """Whether there are variables in an expression."""
    for monomial in x.terms:
        for atom in monomial:
            if isinstance(atom, Variable):
                return True
            if isinstance(atom, Call):
                inside: tuple[Expr, ...] = atom.arguments
            elif isinstance(atom, (Alias, Group)):
                inside = (_content(atom),)
            else:
                continue
            if any(map(_varies, inside)):
                return True
    return False


def _written(function: str, *arguments: Expr) -> Expr:
    if is_marking():
        with unmarked():
            return _written(function, *arguments)
    value = _FUNCTIONS[function][0](*map(int, arguments))
    symbol = _written_call(function, [x.symbol for x in arguments])
    numbers = _written_call(function, [x.numbers for x in arguments])
    return _kind_of(*arguments).of({(Call(symbol, value, numbers, function, arguments),): 1})


def _written_call(function: str, texts: Sequence[str]) -> str:
    written = _FUNCTIONS[function][1]
    return written.format(*texts if function in ("min", "max") else map(_bracketed, texts))


def _bracketed(text: str) -> str:
    return f"({text})" if " + " in text or " − " in text else text


def _substitute(atom: Atom, values: Mapping[str, int]) -> Expr:
    if isinstance(atom, Variable):
        value = values.get(atom.symbol, atom.value)
        return value if isinstance(value, Expr) else Expr.variable(atom.symbol, value)
    if isinstance(atom, Call):
        return _CONSTRUCTORS[atom.function](*(x.at(**values) for x in atom.arguments))
    if isinstance(atom, Alias):
        return atom.definition.at(**values).alias(atom.symbol)
    if isinstance(atom, Group):
        return atom.content.at(**values).in_brackets()
    return Expr.of({(atom,): 1})


def _replace_letter(atom: Atom, values: Mapping[str, int]) -> Expr:
    if isinstance(atom, Letter) and not isinstance(atom, Factor) and atom.symbol in values:
        value = values[atom.symbol]
        return value if isinstance(value, Expr) else Expr(atom.symbol, value)
    if isinstance(atom, Call):
        return _CONSTRUCTORS[atom.function](*(x.with_letters(values) for x in atom.arguments))
    if isinstance(atom, Alias):
        return atom.definition.with_letters(values).alias(atom.symbol)
    if isinstance(atom, Group):
        return atom.content.with_letters(values).in_brackets()
    return Expr.of({(atom,): 1})


def _evaluate(atom: Call | Alias | Group, values: Mapping[str, int]) -> int:
    if not isinstance(atom, Call):
        return _content(atom).evaluate(**values)
    return _FUNCTIONS[atom.function][0](*(x.evaluate(**values) for x in atom.arguments))


_CONSTRUCTORS: Mapping[str, Callable[..., Expr]] = {
    "min": minimum,
    "max": maximum,
    "floor": floor_div,
    "ceil": ceil_div,
    "round": round_div,
    "log2": ceil_log2,
    "routed": routed_bytes,
}
"""Name in JSON -> the function that builds its expression, simplified where it can be."""


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """Remove the atoms of `part` from a monomial; None if it lacks one."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _product(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> dict[Monomial, int]:
    terms: dict[Monomial, int] = {}
    for left, k in a.items():
        for right, m in b.items():
            terms[left + right] = terms.get(left + right, 0) + k * m
    return terms


def _content(atom: Alias | Group) -> Expr:
    return atom.content if isinstance(atom, Group) else atom.definition


def _operation(function: str, arguments: list[Json]) -> Json:
    return arguments[0] if len(arguments) == 1 else [function, *arguments]


def _number_json(n: int) -> Json:
    return n if abs(n) <= _LARGEST_NUMBER else str(n)


def _atom_json(atom: Atom) -> Json:
    if isinstance(atom, Variable):
        return atom.symbol
    if isinstance(atom, Factor):
        return _number_json(atom.value)
    if isinstance(atom, Letter):
        return ["let", atom.symbol, _number_json(atom.value)]
    if isinstance(atom, Group):
        return atom.content.to_expression_json()
    if isinstance(atom, Alias):
        return ["as", _symbol(atom), atom.definition.to_expression_json()]
    return [atom.function, *(x.to_expression_json() for x in atom.arguments)]


def _number_form(n: int) -> Json:
    return n.to_form() if isinstance(n, (Expr, Number)) else _number_json(int(n))


def _atom_form(atom: Atom) -> Json:
    if isinstance(atom, Call):
        return [atom.function, *(x.to_form() for x in atom.arguments)]
    if isinstance(atom, (Variable, Factor)):
        return _number_form(atom.value)
    return _atom_json(atom) if isinstance(atom, Letter) else _content(atom).to_form()


def _symbol(atom: Atom) -> str:
    """Return an atom in letters; only with marks, what is in its text is written anew."""
    if isinstance(atom, Factor):
        return str(atom.value)
    if not is_marking() or isinstance(atom, (Letter, Variable)):
        return atom.symbol
    if isinstance(atom, Call):
        return _written_call(atom.function, [x.symbol for x in atom.arguments])
    if isinstance(atom, Group):
        return f"({atom.content.symbol})"
    return str(atom.definition) if atom.symbol == str(atom.value) else atom.symbol


def _numbers(atom: Atom) -> str:
    """Return an atom in numbers."""
    if isinstance(atom, (Call, Group)):
        if not is_marking():
            return atom.numbers
        if isinstance(atom, Group):
            return f"({atom.content.numbers})"
        return _written_call(atom.function, [x.numbers for x in atom.arguments])
    if isinstance(atom, Letter) and not isinstance(atom, Factor):
        return str(Expr.of({(atom,): 1})) if is_marking() else str(atom.value)
    return str(atom.value if isinstance(atom, (Variable, Factor)) else atom.definition)


def _format(terms: Mapping[Monomial, int], show: Callable[[Atom], str]) -> str:
    text = ""
    for monomial, k in terms.items():
        factors = [show(atom) for atom in monomial]
        if factors and type(k) is Number:
            size = abs(k)
            factors[0] = mark("" if size == 1 else f"{int(size)}·", "factor", size) + factors[0]
        elif abs(k) != 1 or not factors:
            factors.insert(0, str(abs(k)))
        sign = " − " if k < 0 else " + "
        text += (sign if text else "−" if k < 0 else "") + "·".join(factors)
    return text or "0"
