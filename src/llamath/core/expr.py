"""`Dim`: an int with a symbolic expression, so that shapes and totals have formulas.

`Dim("H", 32) * Dim("h", 128)` is 4096 and is written `H·h`. Inside, a Dim is a polynomial over atoms (a symbol with its value):
sums and products of Dims stay exact and readable; any other arithmetic gives a plain int.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

_Atom = tuple[str, int]
Monomial = tuple[_Atom, ...]


class Dim(int):
    """A positive int with a symbol; arithmetic and comparison are those of int."""

    terms: dict[Monomial, int]

    def __new__(cls, symbol: str, value: int) -> Dim:
        return cls.of({((symbol, int(value)),): 1})

    @classmethod
    def of(cls, terms: Mapping[Monomial, int]) -> Dim:
        """The Dim of a polynomial: coefficients by monomial."""
        kept = {monomial: k for monomial, k in terms.items() if k}
        total = 0
        for monomial, k in kept.items():
            for _, value in monomial:
                k *= value
            total += k
        self = int.__new__(cls, total)
        self.terms = kept
        return self

    @classmethod
    def const(cls, value: int) -> Dim:
        """A number without a letter."""
        return value if isinstance(value, Dim) else cls.of({(): int(value)})

    def with_symbol(self, symbol: str) -> Dim:
        """Return this value as a dimension with its own letter."""
        return Dim(symbol, int(self))

    @property
    def symbol(self) -> str:
        """The expression in letters: `H·h`, `2·F`, `H·h + 2·K·h`."""
        return _format(self.terms, lambda atom: atom[0])

    @property
    def numbers(self) -> str:
        """Write the expression with values for letters: `32·128`."""
        return _format(self.terms, lambda atom: str(atom[1]))

    @property
    def atoms(self) -> dict[str, int]:
        """The letters in it, with their values."""
        return {symbol: value for monomial in self.terms for symbol, value in monomial}

    @property
    def factors(self) -> tuple[Dim, ...]:
        """The letters of a product of letters."""
        ((monomial, k),) = self.terms.items()
        assert k == 1, f"{self.symbol} is not a product of letters"
        return tuple(Dim(symbol, value) for symbol, value in monomial)

    def __mul__(self, other: int) -> Dim:
        return product((self, other)) if isinstance(other, int) else NotImplemented

    def __rmul__(self, other: int) -> Dim:
        return product((other, self)) if isinstance(other, int) else NotImplemented

    def __add__(self, other: int) -> Dim:
        return total((self, other)) if isinstance(other, int) else NotImplemented

    def __radd__(self, other: int) -> Dim:
        return total((other, self)) if isinstance(other, int) else NotImplemented

    def __sub__(self, other: int) -> Dim:
        return total((self, product((-1, other)))) if isinstance(other, int) else NotImplemented

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Dim.of, (self.terms,)

    def __repr__(self) -> str:
        return f"Dim({self.symbol!r}, {int(self)})"

    __str__ = int.__repr__
    __hash__ = int.__hash__


def total(values: Iterable[int]) -> Dim:
    """The sum of Dims and ints, like terms collected in order of first appearance."""
    terms: dict[Monomial, int] = {}
    keys: dict[Monomial, Monomial] = {}
    for value in values:
        for monomial, k in Dim.const(value).terms.items():
            first = keys.setdefault(tuple(sorted(monomial)), monomial)
            terms[first] = terms.get(first, 0) + k
    return Dim.of(terms)


def product(values: Iterable[int]) -> Dim:
    """The product of Dims and ints."""
    terms: Mapping[Monomial, int] = {(): 1}
    for value in values:
        terms = _product(terms, Dim.const(value).terms)
    return Dim.of(terms)


def _product(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> dict[Monomial, int]:
    terms: dict[Monomial, int] = {}
    for left, k in a.items():
        for right, m in b.items():
            terms[left + right] = terms.get(left + right, 0) + k * m
    return terms


def _format(terms: Mapping[Monomial, int], show: Callable[[_Atom], str]) -> str:
    text = ""
    for monomial, k in terms.items():
        factors = [show(atom) for atom in monomial]
        if abs(k) != 1 or not factors:
            factors.insert(0, str(abs(k)))
        sign = " − " if k < 0 else " + "
        text += (sign if text else "−" if k < 0 else "") + "·".join(factors)
    return text or "0"
