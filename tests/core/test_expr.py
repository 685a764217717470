"""Exprs are ints with a symbolic expression."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamath.core.expr import (
    Expr,
    Power,
    ceil_div,
    floor_div,
    maximum,
    minimum,
    product,
    round_div,
    routed_bytes,
    total,
    written_ceil_div,
)

LETTERS = "VdLHKhFE"
dims = st.builds(Expr, st.sampled_from(LETTERS), st.integers(1, 10**6))
env = st.fixed_dictionaries({letter: st.integers(1, 10**9) for letter in LETTERS})


def test_products_and_sums_keep_their_order() -> None:
    H, K, h, F = Expr("H", 32), Expr("K", 8), Expr("h", 128), Expr("F", 14336)
    assert (H * h, (H * h).symbol, (H * h).numbers) == (4096, "H·h", "32·128")
    assert ((H * h + 2 * (K * h)).symbol, H * h + 2 * (K * h)) == ("H·h + 2·K·h", 6144)
    assert ((2 * F).symbol, (F * 2).symbol, (F + 2).symbol, (F - H).symbol) == (
        "2·F",
        "2·F",
        "F + 2",
        "F − H",
    )
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
@pytest.mark.slow
def test_printed_expression_evaluates_to_the_value(
    env: dict[str, int], data: st.DataObject
) -> None:
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


def test_values_of_variables_are_evaluated_as_by_substitution() -> None:
    T, B, L = Expr.variable("T", 1), Expr.variable("B", 1), Expr("L", 32)
    for x in (
        L * T * B + 3,
        minimum(T, 4096) * maximum(B, L),
        ceil_div(T * L, B) + floor_div(T, 3 * B) - round_div(T, 7),
        routed_bytes(10**9, 3, 31, 32, B * T, 10_000),
        (T * T + B).alias("A") * 2,
        (T + L).in_brackets() * Expr.factor(2) * B,
        written_ceil_div(T * L, 32) * Expr.factor(34),
    ):
        for t, b in ((1, 1), (8192, 4), (10**6, 37)):
            assert x.evaluate(T=t, B=b) == int(x.at(T=t, B=b)), (x.symbol, t, b)


def test_quotients_are_simplified_where_they_are_exact() -> None:
    T, K = Expr.variable("T", 1), Expr("K", 8)
    assert (
        ceil_div(K * T, 1).symbol == "K·T" and floor_div(4 * T * K + 2 * T, 2).symbol == "2·T·K + T"
    )
    assert (floor_div(T + 1, 2).symbol, ceil_div(K, T).symbol) == ("⌊(T + 1) / 2⌋", "⌈K / T⌉")
    assert (ceil_div(7, 2), type(ceil_div(7, 2)), round_div(5, 2), round_div(7, 3)) == (
        4,
        int,
        3,
        2,
    )


def test_letters_are_replaced_by_values_and_by_expressions() -> None:
    d, H = Expr.variable("d", 64), Expr.variable("H", 4)
    x = Expr("K", 4) * Expr("h", 16) + Expr("F", 5)
    found = x.with_letters({"K": H, "h": floor_div(d, H), "F": 7})
    assert (found.symbol, found, found.evaluate(d=96, H=8)) == ("H·⌊d / H⌋ + F", 71, 103)


def test_json_keeps_letters_symbols_and_large_numbers() -> None:
    T = Expr.variable("T", 1)
    assert (Expr("L", 3) * T * 2).to_expression_json() == ["*", 2, ["let", "L", 3], "T"]
    assert (T * T - 1).alias("A").to_expression_json() == ["as", "A", ["+", ["*", "T", "T"], -1]]
    assert (minimum(T, 5) + 2**60).to_expression_json() == ["+", ["min", "T", 5], str(2**60)]


def test_factors_and_brackets_are_not_multiplied_out() -> None:
    T, r, p = Expr.variable("T", 1000), Expr("r", 512), Expr("p", 64)
    x = 3 * (r + p).in_brackets() * T * Expr.factor(2)
    assert (x, x.symbol, x.numbers) == (3 * 576 * 1000 * 2, "3·(r + p)·T·2", "3·(512 + 64)·1000·2")
    assert x.atoms == {"r": 512, "p": 64, "T": 1000}
    assert x.to_expression_json() == ["*", 3, ["+", ["let", "r", 512], ["let", "p", 64]], "T", 2]
    assert (x.at(T=7).symbol, x.at(T=7)) == (x.symbol, 3 * 576 * 7 * 2)
    assert x.with_letters({"r": 1, "2": 9}).numbers == "3·(1 + 64)·1000·2"
    assert (x + x).symbol == "6·(r + p)·T·2"
    quotient = written_ceil_div(r + p, 32) * Expr.factor(34)
    assert (quotient, quotient.symbol, quotient.numbers) == (
        18 * 34,
        "⌈(r + p) / 32⌉·34",
        "⌈(512 + 64) / 32⌉·34",
    )
    assert (Expr.factor(1) * T).symbol == written_ceil_div(T, 1).symbol == "T"


def test_power_is_a_float_that_keeps_its_dimensions() -> None:
    h = Expr("h", 64)
    power = 2 * h**-0.5
    assert isinstance(power, Power) and power == 0.25 and type(h**2) is int
    assert (power.base.symbol, power.exponent, power.factor) == ("h", -0.5, 2.0)
    inverse = 1.5 / h**0.5
    assert isinstance(inverse, Power) and inverse == 0.1875
    assert (inverse.exponent, inverse.factor) == (-0.5, 1.5)
    assert pickle.loads(pickle.dumps(power)).base.symbol == "h"
    assert not isinstance(Expr.const(64) ** -0.5, Power)
