"""A family's total as a polynomial of its letters, read off the tree: what the search evaluates in place of a second formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from ...core.blocks import Decoder
from ...core.expr import Dim, product, total
from ...core.parameter_count import Count
from ...core.tree import fold

Term = tuple[int, tuple[tuple[str, int], ...]]


class Plane(NamedTuple):
    """a + b·L + c·F + e·L·F: the total once everything but layers and feed-forward width is given."""

    a: int
    b: int
    c: int
    e: int

    def line(self, layers: int) -> tuple[int, int]:
        """(start, slope): the total as start + slope · F."""
        return self.a + self.b * layers, self.c + self.e * layers

    def at(self, layers: int, ffn: int) -> int:
        """The total itself."""
        return self.a + self.b * layers + (self.c + self.e * layers) * ffn


class Polynomial(NamedTuple):
    """Coefficients by monomial: letters with their powers."""

    terms: tuple[Term, ...]

    @classmethod
    def of(cls, value: Dim, free: Iterable[str]) -> Polynomial:
        """The polynomial of a Dim in these letters; all others keep their values."""
        made: Counter[tuple[tuple[str, int], ...]] = Counter()
        letters = set(free)
        for monomial, k in value.terms.items():
            powers = Counter(letter for letter, _ in monomial if letter in letters)
            for letter, n in monomial:
                if letter not in letters:
                    k *= n
            made[tuple(sorted(powers.items()))] += k
        return cls(tuple((k, monomial) for monomial, k in made.items() if k))

    def plane(self, values: Mapping[str, int], ffn: str) -> Plane:
        """What is left when all letters but L and the feed-forward's have values."""
        parts = [0, 0, 0, 0]
        for k, monomial in self.terms:
            at = 0
            for letter, power in monomial:
                if letter == "L":
                    at += 1
                elif letter == ffn:
                    at += 2
                else:
                    k *= values[letter] ** power
            parts[at] += k
        return Plane(*parts)

    def linear(self, ffn: str) -> bool:
        """Whether layers and feed-forward width occur in the first power alone."""
        return all(power == 1 for _, monomial in self.terms for letter, power in monomial if letter in ("L", ffn))


def total_polynomial(report: Count) -> Dim:
    """The total with its letters."""
    return total(product((Dim.const(x.times), x.formula)) for x in report.sections)


def active_polynomial(report: Count, tree: Decoder) -> Dim:
    """What a token passes through, with the letters of the total; experts are as many as one token is sent to."""
    shares = {id(x.weight): Fraction(int(x.active), int(x.copies)) for x in fold(tree)}
    return total(
        product((Dim.const(x.times), int(int(row.copies) * shares[id(row.weight)]), row.weight.parameters))
        for x in report.sections
        for row in x.rows
    )
