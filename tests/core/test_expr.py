"""Exprs are ints with a symbolic expression."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from llamath.core.expr import Expr, product, total

LETTERS = "VdLHKhFE"
dims = st.builds(Expr, st.sampled_from(LETTERS), st.integers(1, 10**6))
env = st.fixed_dictionaries({letter: st.integers(1, 10**9) for letter in LETTERS})


def test_products_and_sums_keep_their_order() -> None:
    H, K, h, F = Expr("H", 32), Expr("K", 8), Expr("h", 128), Expr("F", 14336)
    assert (H * h, (H * h).symbol, (H * h).numbers) == (4096, "H·h", "32·128")
    assert ((H * h + 2 * (K * h)).symbol, H * h + 2 * (K * h)) == ("H·h + 2·K·h", 6144)
    assert ((2 * F).symbol, (F * 2).symbol, (F + 2).symbol, (F - H).symbol) == ("2·F", "2·F", "F + 2", "F − H")
    assert (H * h + h * H).symbol == "2·H·h"
    assert (F // H, type(F // H)) == (448, int)
    assert repr(H) == "Expr('H', 32)" and str(H) == "32" and f"{F:,}" == "14,336"


def test_empty_sum_is_zero() -> None:
    assert (total([]), total([]).symbol, product([])) == (0, "0", 1)


def test_dim_survives_copying_and_pickling() -> None:
    x = Expr("H", 3) * Expr("h", 5)
    again = pickle.loads(pickle.dumps(x))
    assert (again, again.symbol) == (x, x.symbol)


@given(env, st.data())
def test_printed_expression_evaluates_to_the_value(env: dict[str, int], data: st.DataObject) -> None:
    def expression(depth: int) -> int:
        if depth == 0:
            letter = data.draw(st.sampled_from(LETTERS))
            return Expr(letter, env[letter])
        a, b = expression(depth - 1), expression(depth - 1)
        return data.draw(st.sampled_from([a * b, a + b, a * 2, a + 3]))

    x = Expr.const(expression(3))
    for text, names in ((x.symbol, env), (x.numbers, {})):
        assert eval(text.replace("·", "*").replace("−", "-"), {}, names) == x
    assert x.atoms.items() <= env.items()
