"""Where the forms of a family hold: conditions on its numbers, as decisions of its builder made
them, with a sentence for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from ...core.expr import Expr, Json, floor_div, maximum
from ...utils.record_type import Record
from .traced_numbers import Guard

_TABLE = 256
"""Numbers for which a condition on one is tried, to say it in words."""
_MULTIPLES = (2, 3, 4, 6, 8, 16)


class Condition(Record):
    """A constraint left ≤ right, with its sentence."""

    left: Expr
    right: Expr
    text: str
    # whether the library counts its violation, with weights that the forms do not have
    bounds_forms: bool = False

    def is_violated(self, values: Mapping[str, int]) -> bool:
        """Whether these numbers violate it."""
        return self.left.evaluate(**values) > self.right.evaluate(**values)


def conditions_of(guard: Guard, keys: Mapping[str, str], bounds_forms: bool) -> Iterator[Condition]:
    """Yield what has to hold so that a decision stays as it is."""
    a, b = guard.left, guard.right
    names = [_named(x.to_expression_json(), keys) for x in (a, b)]
    text = _text_of_one(guard, keys)

    def made(left: Expr, right: Expr, otherwise: str) -> Condition:
        return Condition(left=left, right=right, text=text or otherwise, bounds_forms=bounds_forms)

    if guard.operation == "|":
        if guard.held:
            by = f"{names[1]} should divide {names[0]}"
            if not b.variables:
                by = f"{names[0]} should be {'even' if b == 2 else f'a multiple of {int(b)}'}"
            yield made(a, Expr.const(b * floor_div(a, b)), by)
        else:
            least = Expr.const(b * floor_div(a, b)) + 1
            yield made(least, a, f"{names[1]} should not divide {names[0]}")
    elif guard.operation == "<":
        if guard.held:
            yield made(a + 1, b, f"{names[0]} should be less than {names[1]}")
        else:
            yield made(b, a, f"{names[1]} should be at most {names[0]}")
    elif guard.held:
        equal = f"{names[0]} should be {names[1]}"
        yield made(a, b, equal)
        yield made(b, a, equal)
    else:
        unequal = f"{names[0]} should not be {names[1]}".replace(" − ", " should not be ", 1)
        text_of_zero = unequal.removesuffix(" should not be 0") if " − " in names[0] else unequal
        yield made(Expr.const(1), maximum(a - b, b - a), text_of_zero)


def _named(x: Json, keys: Mapping[str, str], is_part: bool = False) -> str:
    """Write an expression with keys for letters."""
    if not isinstance(x, list):
        return keys.get(str(x), str(x))
    name, *rest = x
    if name in ("let", "as"):
        return _named(rest[-1], keys, is_part)
    parts = [_named(y, keys, True) for y in rest]
    if name in ("floor", "ceil"):
        text = " / ".join(parts)
    elif name == "*":
        text = " × ".join(parts).replace("-1 × ", "−")
    elif name == "+":
        text = " + ".join(parts).replace("+ −", "− ").replace("+ -", "− ")
    else:
        return f"{name}({', '.join(parts)})"
    return f"({text})" if is_part and name != "*" else text


def _units(x: Json) -> Iterator[Json]:
    """Yield the variables and the named parts of an expression."""
    if isinstance(x, str):
        if not x.lstrip("-").isdigit():
            yield x
    elif isinstance(x, list):
        if x[0] == "as":
            yield x
        elif x[0] != "let":
            for y in x[1:]:
                yield from _units(y)


def _with_unit(x: Expr, name: str) -> Expr | None:
    """Return an expression with a variable in place of its only unit."""

    def read(y: Json) -> Expr:
        if isinstance(y, int):
            return Expr.const(y)
        if isinstance(y, str):
            return Expr.const(int(y)) if y.lstrip("-").isdigit() else Expr.variable(name, 1)
        function, *rest = y
        if function == "as":
            return Expr.variable(name, 1)
        if function == "let":
            return Expr.const(int(rest[1]))
        parts = [read(z) for z in rest]
        found = parts[0]
        for part in parts[1:]:
            if function == "+":
                found = found + part
            elif function == "*":
                found = found * part
            elif function == "floor":
                found = Expr.const(floor_div(found, part))
            else:
                raise ValueError(function)
        return found

    try:
        return read(x.to_expression_json())
    except ValueError:
        return None


def _guard_of_one(guard: Guard) -> tuple[Guard, Json] | None:
    """Return a decision about one number as one about x, and the number; None if it is about
    more.
    """
    sides = [x.to_expression_json() for x in (guard.left, guard.right)]
    units = {json.dumps(x): x for side in sides for x in _units(side)}
    if len(units) != 1:
        return None
    left, right = (_with_unit(x, "x") for x in (guard.left, guard.right))
    if left is None or right is None:
        return None
    ((unit),) = units.values()
    return Guard(guard.operation, left, right, guard.held), unit


def holds_always(guard: Guard) -> bool:
    """Whether a decision about one number is the same for all that were tried."""
    found = _guard_of_one(guard)
    tried = (*range(1, _TABLE), *(2**i + x for i in range(8, 32) for x in (-1, 0, 1)))
    return found is not None and all(found[0].holds(x=n) for n in tried)


def _text_of_one(guard: Guard, keys: Mapping[str, str]) -> str:
    """Say a condition on one number in words; empty where it has more, or no words are known."""
    if (found := _guard_of_one(guard)) is None:
        return ""
    one, unit = found
    numbers = range(1, _TABLE)
    good, name = [n for n in numbers if one.holds(x=n)], _named(unit, keys)
    if one.operation == "==" and not one.held and good == list(numbers) and not one.holds(x=0):
        return f"{name} should be at least 1"
    for m in _MULTIPLES:
        if good and good == [n for n in numbers if n % m == 0]:
            return f"{name} should be {'even' if m == 2 else f'a multiple of {m}'}"
    if not good:
        return ""
    first, last = good[0], good[-1]
    if len(good) == 1:
        return f"{name} should be {first}"
    if good == list(range(first, _TABLE)) and first > 1:
        return f"{name} should be at least {first}"
    if good == list(range(1, last + 1)) and last < _TABLE - 1:
        return f"{name} should be at most {last}"
    return ""
