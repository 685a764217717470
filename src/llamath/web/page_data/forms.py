"""Expressions ("forms") that Python derives and the page evaluates exactly, so that no formula is stated twice.

A form is a string or a list. Digits are a number, any other string a variable (`T`, the context); `["let", "K", "8"]` is a letter with its
value; `["+", …]`, `["*", …]`, `["min", …]` and `["max", …]` take any number of forms; `["-", a, b]` is a difference, `["^", a, b]` a power;
`["floor", a, b]`, `["ceil", a, b]` and `["round", a, b]` divide, rounding halves up; `[">=", a, b, yes, no]` selects one of its last two
arguments and evaluates only that one; `["as", "M", a]` is a form that is displayed as a letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from ...analysis.memory_line import OVERHEAD_DIVISOR, OVERHEAD_FIXED
from ...core.expr import Alias, Atom, Call, Expr, Variable

Form = str | list[Any]
KINDS: Mapping[str, Callable[[list[int]], int]] = {
    "+": sum,
    "*": prod,
    "min": min,
    "max": max,
    "-": lambda x: x[0] - x[1],
    "^": lambda x: int(x[0] ** x[1]),
    "floor": lambda x: x[0] // x[1],
    "ceil": lambda x: -(-x[0] // x[1]),
    "round": lambda x: (2 * x[0] + x[1]) // (2 * x[1]),
}


def number(n: int, known: Mapping[str, Form] | None = None) -> Form:
    """Return a number as an expression, with known letters replaced."""
    known = known or {}
    if not isinstance(n, Expr) or not n.atoms:
        return str(int(n))
    terms: list[Form] = []
    for monomial, times in n.terms.items():
        factors = [_atom(atom, known) for atom in monomial]
        terms.append(times_of(*([str(times)] if times != 1 or not factors else []), *factors))
    return sum_of(*terms)


def _atom(atom: Atom, known: Mapping[str, Form]) -> Form:
    if isinstance(atom, Call):
        return [atom.function, *(number(x, known) for x in atom.arguments)]
    if isinstance(atom, Alias):
        return ["as", atom.symbol, number(atom.definition, known)]
    if atom.symbol in known:
        return known[atom.symbol]
    return atom.symbol if isinstance(atom, Variable) else ["let", atom.symbol, str(atom.value)]


def sum_of(*forms: Form) -> Form:
    """Return a sum."""
    return forms[0] if len(forms) == 1 else ["+", *forms] if forms else "0"


def times_of(*forms: Form) -> Form:
    """Return a product."""
    flat = [y for x in forms for y in (x[1:] if isinstance(x, list) and x[0] == "*" else [x])]
    kept = [x for x in flat if x != "1"]
    return kept[0] if len(kept) == 1 else ["*", *kept] if kept else "1"


def written(form: Form, values: Mapping[str, int] | None = None) -> str:
    """Return a product or quotient as text, with letters or with their values."""
    if isinstance(form, str):
        return f"{values[form]:,}" if values and form in values else form
    kind, *parts = form
    text = [written(x, values) for x in parts]
    return f"⌊{text[0]} / {text[1]}⌋" if kind == "floor" else "·".join(text)


def evaluate(form: Form, variables: Mapping[str, int]) -> int:
    """Evaluate an expression as the page does."""
    if isinstance(form, str):
        return int(form) if form.lstrip("-").isdigit() else variables[form]
    kind, *rest = form
    if kind == "let":
        return int(rest[1])
    if kind == "as":
        return evaluate(rest[1], variables)
    if kind == ">=":
        a, b = (evaluate(x, variables) for x in rest[:2])
        return evaluate(rest[2] if a >= b else rest[3], variables)
    return KINDS[kind]([evaluate(x, variables) for x in rest])


def overhead_form(*dynamic: Form) -> Form:
    """Return the overhead's estimate as an expression of the names of its dynamic parts."""
    return ["+", str(OVERHEAD_FIXED), ["floor", ["+", *dynamic], str(OVERHEAD_DIVISOR)]]
