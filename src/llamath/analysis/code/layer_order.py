"""`stack_code`: the expression that makes the blocks of a stack, in their order."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise

from ...core.expr import Expr
from ...core.tree import Stack
from .symbols import Symbols
from .syntax.trees import fill, is_same, parse, unparse, with_argument

_LONGEST_PERIOD = 12
_MOST_CHOICES = 3


def stack_code(
    stack: Stack, made: Mapping[int, ast.expr], count: ast.expr, firsts: Mapping[int, str]
) -> ast.expr:
    """Return `nn.ModuleList([…])` of all blocks of a stack.

    `made` are the expressions of its distinct blocks, and `firsts` the letters of numbers of first
    layers.
    """
    texts = {key: unparse(x) for key, x in made.items()}
    trees = {text: made[key] for key, text in texts.items()}
    if len(trees) == 1:
        block = next(iter(trees.values()))
        if int(stack.n) == 1 and not isinstance(stack.n, Expr):
            return fill("nn.ModuleList([block])", {"block": block})
        return fill("nn.ModuleList([block for _ in range(n)])", {"block": block, "n": count})
    order = [texts[id(x)] for x in stack]
    period = _period(order)
    if len(trees) > _MOST_CHOICES and not period:
        listed = _listed([made[id(x)] for x in stack])
        if listed is not None:
            return fill("nn.ModuleList([x for i in range(n)])", {"x": listed, "n": count})
    places = {
        text: _where(
            [i for i, x in enumerate(order[: period or None]) if x == text], period, order, firsts
        )
        for text in dict.fromkeys(order)
    }
    names = sorted(places, key=lambda x: len(places[x]))
    chain = trees[names[-1]]
    for name in reversed(names[:-1]):
        chain = _choice(trees[name], chain, parse(places[name]))
    return fill("nn.ModuleList([x for i in range(n)])", {"x": chain, "n": count})


def _listed(order: list[ast.expr]) -> ast.expr | None:
    """Return the expression of block i whose arguments that differ are listed, `(2, 3, 4)[i]`; None
    if they are not all numbers.
    """
    calls = [x for x in order if isinstance(x, ast.Call)]
    first = calls[0] if len(calls) == len(order) else None
    if first is None or not all(is_same(x.func, first.func) for x in calls):
        return None
    columns = [[unparse(y) for y in _places(x)] for x in calls]
    if len({len(x) for x in columns}) > 1:
        return None
    for i, values in enumerate(zip(*columns, strict=True)):
        if len(set(values)) == 1:
            continue
        if any("(" in x for x in values):
            return None
        first = with_argument(first, i, parse(f"({', '.join(values)})[i]"))
    return first


def _period(order: list[str]) -> int:
    """Return after how many blocks the order repeats itself; 0 if it does not."""
    for n in range(2, min(len(order) // 2, _LONGEST_PERIOD) + 1):
        if all(x == order[i % n] for i, x in enumerate(order)):
            return n
    return 0


def _where(numbers: list[int], period: int, order: list[str], firsts: Mapping[int, str]) -> str:
    """Return the condition that the number i of a layer is one of these."""
    i, n = (f"i % {period}", period) if period else ("i", len(order))
    last = numbers[-1]
    if len(numbers) == 1 and (period or numbers[0] not in (0, n - 1)):
        return f"{i} == {numbers[0]}"
    if numbers == list(range(last + 1)):
        bound = firsts.get(last + 1, str(last + 1)) if not period else str(last + 1)
        return f"{i} < {bound}"
    if numbers == list(range(numbers[0], n)):
        bound = firsts.get(numbers[0], str(numbers[0])) if not period else str(numbers[0])
        return f"{i} >= {bound}"
    steps = {b - a for a, b in pairwise(numbers)}
    if not period and len(steps) == 1 and (step := steps.pop()) > 1 and last + step >= n:
        start = numbers[0]
        if start < step:
            return f"i % {step} == {start}"
    return f"{i} in ({', '.join(map(str, numbers))})"


def _choice(x: ast.expr, y: ast.expr, condition: ast.expr) -> ast.expr:
    """Return `x if condition else y`, with the choice as far inside as it goes."""
    if isinstance(x, ast.Call) and isinstance(y, ast.Call):
        places = _places(x), _places(y)
        if is_same(x.func, y.func) and len(places[0]) == len(places[1]):
            pairs = enumerate(zip(*places, strict=True))
            different = [i for i, (p, q) in pairs if not is_same(p, q)]
            if len(different) == 1:
                i = different[0]
                new = _choice(places[0][i], places[1][i], condition)
                return with_argument(x, i, new)
    return ast.IfExp(condition, x, y)


def _places(x: ast.Call) -> list[ast.expr]:
    return [*x.args, *(y.value for y in x.keywords)]


def count_code(stack: Stack, symbols: Symbols, letters: Mapping[str, int], key: str) -> ast.expr:
    """Return the number of blocks of a stack, as a letter if there is one."""
    n = stack.n
    if isinstance(n, Expr) and n.letters:
        return symbols.dimension(n)
    if key in letters and letters[key] == int(n):
        return symbols.dimension(Expr(key, int(n)))
    return symbols.number(int(n), "layers" if key == "L" else "blocks")
