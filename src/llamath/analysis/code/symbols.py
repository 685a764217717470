"""`Symbols`: the numbers of a written model, which stand in its code as names until it is known
where they are from.

`_dim_H` is a dimension, `_number_eps_0` a number that a field of the config gets.
"""

from __future__ import annotations

import ast
import keyword
import re
from functools import reduce
from typing import Any

from ...core.expr import Alias, Call, Expr, Group, Letter, Power
from .syntax.trees import OUTLINE, named, parse

DIM, NUMBER = "_dim_", "_number_"
SYMBOL = re.compile(rf"(?:{DIM}|{NUMBER})\w+")


class Symbols:
    """The dimensions and numbers that the code of a model mentions."""

    def __init__(self) -> None:
        self.letters: dict[str, int] = {}
        self.numbers: dict[str, tuple[str, Any]] = {}  # by name: tag and value
        self._trees: dict[int, tuple[Expr, ast.expr]] = {}  # by dimension, which it keeps

    def number(self, value: Any, tag: str = "") -> ast.expr:
        """Return a number; one with a tag becomes a field of the config."""
        if isinstance(value, Power):
            return self.power(value, tag)
        if not tag or value is None or isinstance(value, bool | str):
            return ast.Constant(value)
        if isinstance(value, int | float):
            value = int(value) if isinstance(value, int) else float(value)
        for name, known in self.numbers.items():
            if known == (tag, value) and type(known[1]) is type(value):
                return named(name)
        name = f"{NUMBER}{tag}_{len(self.numbers)}"
        self.numbers[name] = (tag, value)
        return named(name)

    def dimension(self, x: int) -> ast.expr:
        """Return a dimension as an expression of its letters."""
        if not isinstance(x, Expr):
            return ast.Constant(int(x))
        known = self._trees.get(id(x))
        if known is None:
            known = self._trees[id(x)] = x, self._tree(x)
        return known[1]

    def power(self, x: Power, tag: str = "") -> ast.expr:
        """Return a number that follows from dimensions as an expression of these."""
        y: ast.expr = self.dimension(x.base)
        if x.exponent != 1:
            y = ast.BinOp(y, ast.Pow(), ast.Constant(x.exponent))
        if x.factor == 1:
            return y
        factor = self.number(float(x.factor), f"{tag}_factor" if tag else "")
        return ast.BinOp(factor, ast.Mult(), y)

    def _tree(self, x: Expr) -> ast.expr:
        common, terms = _common(x), []
        for monomial, k in x.terms.items():
            rest = list(monomial)
            for atom in common:
                rest.remove(atom)
            factors = [parse(str(k))] if k != 1 or not rest else []
            terms.append(_joined(ast.Mult(), [*factors, *map(self._atom, rest)]))
        whole = _joined(ast.Add(), terms or [ast.Constant(0)])
        return _joined(ast.Mult(), [*map(self._atom, common), whole]) if common else whole

    def _atom(self, atom: Any) -> ast.expr:
        if isinstance(atom, Letter) and is_name(atom.symbol) and type(atom) is Letter:
            self.letters[atom.symbol] = atom.value
            return named(DIM + atom.symbol)
        if isinstance(atom, Call) and atom.function in ("floor", "ceil"):
            a, b = map(self._tree, atom.arguments)
            if atom.function == "floor":
                return ast.BinOp(a, ast.FloorDiv(), b)
            return ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), a), ast.FloorDiv(), b))
        if isinstance(atom, Call) and atom.function in ("min", "max"):
            return ast.Call(named(atom.function), [*map(self._tree, atom.arguments)], [])
        if isinstance(atom, Alias):
            return self._tree(atom.definition)
        if isinstance(atom, Group):
            return self._tree(atom.content)
        return parse(str(atom.value))


def _joined(operator: ast.operator, parts: list[ast.expr]) -> ast.expr:
    return reduce(lambda a, b: ast.BinOp(a, operator, b), parts)


def _common(x: Expr) -> list[Any]:
    """Return the factors that all terms have, if there are several: H · (n + p)."""
    first, *others = [*x.terms] or [()]
    return [y for y in dict.fromkeys(first) if others and all(y in z for z in others)]


def is_name(symbol: str) -> bool:
    """Whether a letter can be the name of a field."""
    return symbol.isidentifier() and not keyword.iskeyword(symbol) and symbol != "lambda"


def is_dimension(x: Any) -> bool:
    """Whether an expression is made of dimensions and constants alone."""
    if isinstance(x, ast.BinOp):
        parts = (x.left, x.right)
        return any(map(is_dimension, parts)) and all(
            is_dimension(y) or isinstance(y, ast.Constant) or is_number(y) for y in parts
        )
    return isinstance(x, ast.Name) and x.id.startswith(DIM)


def is_number(x: Any) -> bool:
    """Whether an expression is a number."""
    return isinstance(x, ast.Constant) or (isinstance(x, ast.Name) and x.id.startswith(NUMBER))


def outline_of(x: Any) -> Any:
    """Return what trees have in common that differ in numbers and dimensions alone."""
    kind = type(x)
    if kind is ast.Name:
        return "number" if x.id.startswith((DIM, NUMBER)) else x.id
    if kind is list:
        return tuple([outline_of(y) for y in x])
    if kind is ast.Constant:
        return repr(x.value) if isinstance(x.value, str) else "number"
    if not isinstance(x, ast.AST):
        return x
    if kind is ast.BinOp and is_dimension(x):
        return "number"
    own = vars(x)
    kept = own.get(OUTLINE)
    if kept is None:
        inner = [outline_of(own.get(name)) for name in x._fields if name != "ctx"]
        kept = own[OUTLINE] = kind, *inner
    return kept


def tag_of(name: str) -> str:
    """Return the tag of a number."""
    return name.removeprefix(NUMBER).rpartition("_")[0]
