"""Scaling laws match the printed tables: tables 3 and A3 and section D.4 of Hoffmann et al., and the replication."""

from __future__ import annotations

import json
from math import exp, log

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from llamath.analysis.size.flops.scaling_laws import LAWS, ParametricLoss, find_law, training_budget
from llamath.cli import cli
from llamath.utils.errors import LlamathError

SIZES = (400e6, 1e9, 10e9, 67e9, 175e9, 280e9, 520e9, 1e12, 10e12)
TABLE_3 = (8.0e9, 20.2e9, 205.1e9, 1.5e12, 3.7e12, 5.9e12, 11.0e12, 21.2e12, 216.2e12)
TABLE_A3_2 = (7.7e9, 20.0e9, 219.5e9, 1.7e12, 4.3e12, 7.1e12, 13.4e12, 26.5e12, 292.0e12)
TABLE_A3_3 = (9.2e9, 27.1e9, 410.1e9, 4.1e12, 12.0e12, 20.1e12, 43.5e12, 94.1e12, 1425.5e12)


@pytest.mark.parametrize(("name", "printed"), [("hoffmann-1", TABLE_3), ("hoffmann-2", TABLE_A3_2)])
def test_tokens_follow_from_compute(name: str, printed: tuple[float, ...]) -> None:
    for n, d in zip(SIZES, printed, strict=True):
        assert LAWS[name].tokens(n) == pytest.approx(
            d, rel=0.05
        )  # 1.5 trillion is printed to two digits
        assert LAWS[name].for_compute(6 * n * LAWS[name].tokens(n)) == pytest.approx(n, rel=1e-6)


def test_unrounded_fit_is_closer_to_the_table() -> None:
    rounded = ParametricLoss(A=406.4, B=410.7, alpha=0.34, beta=0.28)
    for n, d in zip(SIZES, TABLE_A3_3, strict=True):
        assert 1.05 < LAWS["hoffmann-3"].tokens(n) / d < 1.19
        assert 1.5 < exp(rounded(log(n))) / d < 2.3


def test_hoffmann_optimum_at_1e21_flops() -> None:
    assert LAWS["kaplan"].for_compute(1e21) == pytest.approx(4.68e9, rel=0.002)
    assert LAWS["hoffmann-1"].for_compute(1e21) == pytest.approx(2.86e9, rel=0.002)


@pytest.mark.parametrize(
    ("name", "exponent"),
    [
        ("hoffmann-1", 0.50),
        ("hoffmann-2", 0.49),
        ("hoffmann-3", 0.46),
        ("besiroglu", 0.51),
        ("kaplan", 0.73),
    ],
)
def test_exponents_are_published(name: str, exponent: float) -> None:
    law = find_law(name)
    low, high = law.for_compute(1e20), law.for_compute(1e26)
    assert log(high / low) / log(1e6) == pytest.approx(exponent, abs=0.0075)


def test_replication_gives_twenty_tokens_per_parameter() -> None:
    law = find_law("besiroglu")
    n = law.for_compute(5.76e23)  # Chinchilla's
    assert 15 < law.tokens(n) / n < 25
    assert law.source.endswith("arXiv:2404.10102")


@given(st.sampled_from(list(LAWS)), st.floats(6, 13))
def test_law_is_invertible(name: str, digits: float) -> None:
    law, n = find_law(name), 10**digits
    assert law.for_compute(6 * n * law.tokens(n)) == pytest.approx(n, rel=1e-6)
    if name != "kaplan" or digits < 13:
        assert law.for_tokens(law.tokens(n)) == pytest.approx(n, rel=1e-6)


def test_budget_is_6nd() -> None:
    one = training_budget(8_030_261_248, find_law("hoffmann-1"), tokens=15 * 10**12)
    assert one.flops == 6 * 8_030_261_248 * 15 * 10**12 and one.per_parameter == pytest.approx(
        1867.93, abs=0.01
    )
    other = training_budget(8_030_261_248, find_law("hoffmann-1"), flops=one.flops)
    assert other.tokens == one.tokens
    assert not find_law("hoffmann-1").extrapolates(8e9) and find_law("hoffmann-1").extrapolates(
        405e9
    )


def test_unknown_law_has_a_hint() -> None:
    with pytest.raises(LlamathError) as error:
        find_law("hofmann-1")
    assert "hoffmann-1" in error.value.hint


def test_compute_gives_the_target() -> None:
    done = CliRunner().invoke(
        cli, ["design", "--budget", "flops=5.76e23", "--json", "--top", "1"], standalone_mode=False
    )
    output = json.loads(done.stdout)
    assert output["target"] == pytest.approx(67 * 10**9, rel=1e-6)
    compute = output["compute"]
    assert (
        compute["law"] == "hoffmann-1"
        and compute["extrapolated"]
        and compute["flops"] == pytest.approx(5.76e23, rel=1e-6)
    )
    assert compute["tokens_per_parameter"] == pytest.approx(21.4, abs=0.3)
    both = json.loads(
        CliRunner()
        .invoke(
            cli,
            ["design", "--budget", "flops=6e22,tokens=1T", "--json", "--top", "1"],
            standalone_mode=False,
        )
        .stdout
    )
    assert both["target"] == 10**10
    tokens = json.loads(
        CliRunner()
        .invoke(
            cli,
            ["design", "--budget", "tokens=20.17B", "--json", "--top", "1"],
            standalone_mode=False,
        )
        .stdout
    )
    assert tokens["target"] == pytest.approx(10**9, rel=0.001)
