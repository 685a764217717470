"""The bytes of weights as elements · bytes per element: a page has the elements once, and the
bytes per element of each dtype.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm

from ....analysis.size.memory.gpu_shards import ShardedModel
from ....core.expr import Expr, as_number, product, total

UNIT = Expr.variable("e", 1)
"""The bytes of an element are whole numbers over this one."""


class ElementBytes:
    """The kinds of weights: those of a kind have the same bytes per element under every dtype."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Fraction, ...], int] = {}
        self._kind_of_pattern: dict[str, int] = {}

    def form(self, shards: Sequence[ShardedModel], weights: Iterable[tuple[str, int]]) -> Expr:
        """Return the bytes of weights, (pattern, elements), in units; `shards` are the same
        model under each dtype.
        """
        elements = Counter[int]()
        for pattern, n in weights:
            elements[self._kind(shards, pattern)] += as_number(n)
        return total(product((n, _variable(kind))) for kind, n in elements.items())

    def of_dtype(self, place: int) -> Mapping[str, Fraction]:
        """Return the bytes of an element of each kind under the dtype at a place, by the
        variable of the kind.
        """
        return {f"e{kind}": each[place] for each, kind in self._kinds.items()}

    def _kind(self, shards: Sequence[ShardedModel], pattern: str) -> int:
        if pattern not in self._kind_of_pattern:
            each = tuple(x.element_bytes(pattern) for x in shards)
            self._kind_of_pattern[pattern] = self._kinds.setdefault(each, len(self._kinds))
        return self._kind_of_pattern[pattern]


def _variable(kind: int) -> Expr:
    return Expr.variable(f"e{kind}", 1)


def element_variables(each: Mapping[str, Fraction]) -> dict[str, str]:
    """Return the values of the variables: whole numbers over one unit."""
    unit = lcm(*(x.denominator for x in each.values()))
    return {"e": str(unit)} | {name: str(int(x * unit)) for name, x in each.items()}


def element_texts(each: Mapping[str, Fraction]) -> dict[str, str]:
    """Return the bytes of an element as they are written in a sum."""
    return {
        name: f"{x.numerator:,}" + (f"/{x.denominator:,}" if x.denominator > 1 else "")
        for name, x in each.items()
    }
