"""A configuration whose dimensions are traced, and what a family reads of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

from ...core.config import _MISSING, Config
from ...core.expr import Expr
from ...utils.record_type import Record
from .traced_numbers import Trace, Traced

T = TypeVar("T")


class DimRead(Record):
    """A dimension that a family reads."""

    key: str  # that is present, or the first of its synonyms
    names: tuple[str, ...]  # the key and its synonyms
    letter: str
    value: int
    least: int
    # what an absent key means; None: it is required. An expression where other keys decide it.
    default: Expr | None


class TracedConfig(Config):
    """A configuration; each dimension in it is a variable, but those of the fixed keys."""

    def __init__(self, data: Mapping[str, Any], trace: Trace, fixed: Collection[str] = ()) -> None:
        super().__init__(data)
        self.trace, self.fixed = trace, fixed
        self.reads: dict[str, DimRead] = {}

    def get(self, keys: str, default: T) -> T:
        if not isinstance(default, Traced):
            return super().get(keys, default)
        found = super().get(keys, cast(T, int(default)))
        return found if keys in self else default

    def dim(self, symbol: str, keys: str, default: int = _MISSING, least: int = 1) -> Expr:
        usual = None if default is _MISSING else Expr.const(default)
        found = super().dim(symbol, keys, default, least)
        key = self._present(keys)
        if key in self.reads:
            symbol = self.reads[key].letter
        else:
            symbol = self._letter(symbol, key)
            self.reads[key] = DimRead(
                key=key,
                names=tuple(keys.split("|")),
                letter=symbol,
                value=int(found),
                least=least,
                default=usual,
            )
        if found < 1:
            return found
        if self.data.get(key) is None:  # the default, which may follow from others
            return found if usual is None else Expr(symbol, usual)
        if key in self.fixed:
            return found
        return self.trace.variable(symbol, int(found))

    def _letter(self, symbol: str, key: str) -> str:
        """Return a name of letters that no other key has."""
        plain = "".join(x for x in key if x.isascii() and x.isalpha())
        taken = {x.letter for x in self.reads.values()}
        good = symbol.isascii() and symbol.isalpha()
        return symbol if good and symbol not in taken else plain
