"""Expressions of the page's data as `Expr`, for comparison with the page's own evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llamath.core.expr import (
    Expr,
    Json,
    ceil_div,
    ceil_log2,
    floor_div,
    maximum,
    minimum,
    product,
    round_div,
    routed_bytes,
    total,
)

FUNCTIONS = {
    "min": minimum,
    "max": maximum,
    "floor": floor_div,
    "ceil": ceil_div,
    "round": round_div,
    "log2": ceil_log2,
    "routed": routed_bytes,
}


def expression_from_json(x: Json) -> Expr:
    """Return the expression that `Expr.to_expression_json` wrote."""
    if isinstance(x, int):
        return Expr.const(x)
    if isinstance(x, str):
        return Expr.const(int(x)) if x.lstrip("-").isdigit() else Expr.variable(x, 1)
    name, *rest = x
    if name == "let":
        return Expr(rest[0], int(rest[1]))
    if name == "as":
        return expression_from_json(rest[1]).alias(rest[0])
    arguments = [expression_from_json(y) for y in rest]
    if name in ("+", "*"):
        return total(arguments) if name == "+" else product(arguments)
    return Expr.const(FUNCTIONS[name](*arguments))


def evaluate(x: Json, variables: Mapping[str, int]) -> int:
    """Return the value of an expression of the page, all of whose variables are given."""
    found = expression_from_json(x)
    assert found.variables <= variables.keys(), found.variables - variables.keys()
    return found.evaluate(**variables)


def expressions_in(data: Any) -> Iterator[Json]:
    """Yield the expressions in the page's data that are functions of others, not those inside them."""
    if isinstance(data, dict):
        for x in data.values():
            yield from expressions_in(x)
    elif isinstance(data, list):
        if data and isinstance(data[0], str) and data[0] in ("+", "*", *FUNCTIONS):
            yield data
        else:
            for x in data:
                yield from expressions_in(x)


def total_of(counts: Mapping[str, Any], at: Mapping[str, int]) -> int:
    """Return the total of a design: its parts, each as often as it occurs."""
    return sum(
        evaluate(x["times"]["form"], at) * sum(evaluate(y["form"], at) for y in x["groups"])
        for x in counts["bars"]
    )


def active_of(counts: Mapping[str, Any], at: Mapping[str, int]) -> int:
    """Return the active parameters of a design: all where it has no form of its own for them."""
    form = counts["active"]["form"]
    return total_of(counts, at) if form is None else evaluate(form, at)
