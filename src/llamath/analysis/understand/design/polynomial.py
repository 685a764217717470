"""A family's total as a polynomial of its dimensions, read off the tree; the search evaluates it
instead of a second formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from ....core.blocks import Decoder
from ....core.expr import Expr, product, total
from ....core.parameter_count import Count
from ....core.tree import fold

Term = tuple[int, tuple[tuple[str, int], ...]]


class Plane(NamedTuple):
    """The total a + b·L + c·F + e·L·F when all other dimensions are given."""

    a: int
    b: int
    c: int
    e: int

    def line(self, layers: int) -> tuple[int, int]:
        """Return (start, slope) of the total as start + slope · F at a depth."""
        return self.a + self.b * layers, self.c + self.e * layers

    def at(self, layers: int, ffn: int) -> int:
        """Return the total."""
        return self.a + self.b * layers + (self.c + self.e * layers) * ffn


class Polynomial(NamedTuple):
    """Coefficients by monomial; a monomial is a tuple of letters with powers."""

    terms: tuple[Term, ...]

    @classmethod
    def of(cls, value: Expr, free: Iterable[str]) -> Polynomial:
        """Return an Expr as a polynomial in these letters; all other letters are replaced by
        their values.
        """
        coefficients: Counter[tuple[tuple[str, int], ...]] = Counter()
        letters = set(free)
        for monomial, coefficient in value.terms.items():
            powers = Counter(atom.symbol for atom in monomial if atom.symbol in letters)
            for atom in monomial:
                if atom.symbol not in letters:
                    coefficient *= atom.value
            coefficients[tuple(sorted(powers.items()))] += coefficient
        return cls(
            tuple(
                (coefficient, monomial)
                for monomial, coefficient in coefficients.items()
                if coefficient
            )
        )

    def plane(self, values: Mapping[str, int], ffn: str) -> Plane:
        """Substitute values for all letters except L and the FFN width."""
        parts = [0, 0, 0, 0]
        for coefficient, monomial in self.terms:
            index = 0
            for letter, power in monomial:
                if letter == "L":
                    index += 1
                elif letter == ffn:
                    index += 2
                else:
                    coefficient *= values[letter] ** power
            parts[index] += coefficient
        return Plane(*parts)

    def linear(self, ffn: str) -> bool:
        """Return whether layers and FFN width occur only in the first power."""
        return all(
            power == 1
            for _, monomial in self.terms
            for letter, power in monomial
            if letter in ("L", ffn)
        )


def total_polynomial(report: Count) -> Expr:
    """Return the total as a formula."""
    return total(product((Expr.const(x.times), x.formula)) for x in report.sections)


def active_polynomial(report: Count, tree: Decoder) -> Expr:
    """Return the active parameters as a formula, with as many experts as a token is routed to."""
    shares = {id(x.weight): Fraction(int(x.active), int(x.copies)) for x in fold(tree)}
    return total(
        product(
            (
                Expr.const(x.times),
                int(int(row.copies) * shares[id(row.weight)]),
                row.weight.active_parameters,
            )
        )
        for x in report.sections
        for row in x.rows
    )
