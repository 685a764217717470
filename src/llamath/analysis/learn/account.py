"""`Account`: a number as the sum of named products, which a `Mistake` can change term by term."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import prod
from typing import NamedTuple

from ...core.expr import Expr, product, total
from ...utils.record_type import Record


class Product(NamedTuple):
    """One term: a weight, or a part of a cache or of a computation, as a product of named factors
    such as `layers`, `out`, `in`, `tokens`, `bytes`.
    """

    path: str  # of a weight inside its layer; else what it is: keys, values, scores
    group: str
    factors: tuple[tuple[str, Expr], ...]
    role: str = ""  # of a weight: matmul, lookup, scale, bias
    tied: bool = False  # it shares the values of another one, and adds nothing

    @property
    def value(self) -> Expr:
        """The product of the factors."""
        return Expr.const(0) if self.tied else product(x for _, x in self.factors)

    @property
    def number(self) -> int:
        """Its value as a plain number, which costs much less."""
        return 0 if self.tied else prod([int(x) for _, x in self.factors])

    def factor(self, name: str) -> Expr | None:
        """Return one factor; None if it has none of this name."""
        return next((x for own, x in self.factors if own == name), None)

    def with_factor(self, name: str, value: int) -> Product:
        """Return it with another value of a factor, or with one more."""
        new = Expr.const(value)
        if self.factor(name) is None:
            return self._replace(factors=(*self.factors, (name, new)))
        changed = ((own, new if own == name else x) for own, x in self.factors)
        return self._replace(factors=tuple(changed))

    def with_letters(self, values: Mapping[str, int]) -> Product:
        """Return it with other values or expressions in place of letters."""
        changed = ((name, x.with_letters(values)) for name, x in self.factors)
        return self._replace(factors=tuple(changed))


Chosen = Callable[[Product], bool]


class Account(Record):
    """The sum of products, times a ratio of units, which only mistakes have."""

    products: tuple[Product, ...]
    scale: Fraction = Fraction(1)

    @property
    def value(self) -> Expr:
        """The sum as an expression in letters."""
        return total(x.value for x in self.products)

    @property
    def number(self) -> Fraction | int:
        """The sum as a number, which is not whole where units are mixed up."""
        kept: Fraction | int | None = vars(self).get("_number")
        if kept is None:
            plain = sum([x.number for x in self.products])
            kept = vars(self)["_number"] = plain if self.scale == 1 else self.scale * plain
        return kept

    def each(self, change: Callable[[Product], Product | None]) -> Account:
        """Return the account with changed products; None leaves one out."""
        found = (change(x) for x in self.products)
        return self.replace(products=tuple(x for x in found if x is not None))

    def without(self, chosen: Chosen) -> Account:
        """Return the account without some of its products."""
        return self.replace(products=tuple(x for x in self.products if not chosen(x)))

    def plus(self, more: Iterable[Product]) -> Account:
        """Return the account with more products."""
        return self.replace(products=(*self.products, *more))

    def scaled(self, ratio: Fraction) -> Account:
        """Return the account in another unit."""
        return self.replace(scale=self.scale * ratio)


def of_factors(path: str, group: str = "", **factors: int) -> Product:
    """Return a product of these factors."""
    return Product(path, group, tuple((x, Expr.const(n)) for x, n in factors.items()))
