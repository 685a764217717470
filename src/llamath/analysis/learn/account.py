"""`Account`: a number as the sum of named products, which a `Mistake` can change term by term."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from operator import is_
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

    def without(self, *names: str) -> Product:
        """Return it without these factors."""
        return self._replace(factors=tuple([x for x in self.factors if x[0] not in names]))

    def with_factor(self, name: str, value: int) -> Product:
        """Return it with another value of a factor, or with one more."""
        new = Expr.const(value)
        old = self.factor(name)
        if old is new:
            return self
        if old is None:
            return self._replace(factors=(*self.factors, (name, new)))
        changed = ((own, new if own == name else x) for own, x in self.factors)
        return self._replace(factors=tuple(changed))

    def with_letters(self, values: Mapping[str, int]) -> Product:
        """Return it with other values or expressions in place of letters: itself where it has
        none of them.
        """
        if all(x.symbols.isdisjoint(values) for _, x in self.factors):
            return self
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
        kept: Expr | None = vars(self).get("_value")
        if kept is None:
            kept = vars(self)["_value"] = total(x.value for x in self.products)
        return kept

    @property
    def number(self) -> Fraction | int:
        """The sum as a number, which is not whole where units are mixed up."""
        kept: Fraction | int | None = vars(self).get("_number")
        if kept is None:
            plain = sum(self._numbers)
            kept = vars(self)["_number"] = plain if self.scale == 1 else self.scale * plain
        return kept

    @property
    def _numbers(self) -> Sequence[int]:
        """The numbers of the products; a changed account keeps those of unchanged ones."""
        kept: Sequence[int] | None = vars(self).get("_kept_numbers")
        if kept is None:
            kept = vars(self)["_kept_numbers"] = [x.number for x in self.products]
        return kept

    def each(self, change: Callable[[Product], Product | None]) -> Account:
        """Return the account with changed products; None leaves one out."""
        products, numbers = [], []
        for x, n in zip(self.products, self._numbers, strict=True):
            if (new := change(x)) is not None:
                products.append(new)
                numbers.append(n if new is x else new.number)
        if len(products) == len(self.products) and all(map(is_, products, self.products)):
            return self
        changed = Account(products=tuple(products), scale=self.scale)
        vars(changed)["_kept_numbers"] = numbers
        return changed

    def without(self, chosen: Chosen) -> Account:
        """Return the account without some of its products."""
        return self.each(lambda x: None if chosen(x) else x)

    def plus(self, more: Iterable[Product]) -> Account:
        """Return the account with more products."""
        return self.replace(products=(*self.products, *more))

    def scaled(self, ratio: Fraction) -> Account:
        """Return the account in another unit."""
        return self.replace(scale=self.scale * ratio)


def of_factors(path: str, group: str = "", **factors: int) -> Product:
    """Return a product of these factors."""
    return Product(path, group, tuple((x, Expr.const(n)) for x, n in factors.items()))
