"""Folding names over numbers: lossless for any names, and linear in their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamath.analysis.storage.name_folding import fold_groups, fold_names, unfold_pattern
from support.cost_limits import within_calls

PART = st.sampled_from(
    [
        "layers",
        "w1",
        "w2",
        "",
        "{",
        "}",
        "{0..3}",
        "{{1}}",
        "0",
        "00",
        "01",
        "é",
        "٣",
        "\n",
        "a\nb",
        "12345678901",
    ]
)
NUMBER = st.integers(0, 12).map(str)
NAME = st.lists(PART | NUMBER, min_size=1, max_size=5).map(".".join)
LAYERS = st.builds(
    lambda i, e, x: f"layers.{i}.experts.{e}.{x}",
    st.integers(0, 9),
    st.integers(0, 5),
    st.sampled_from(["up", "down"]),
)


def unfold_folded(names: Sequence[str]) -> Counter[str]:
    return Counter(name for pattern, _ in fold_names(names) for name in unfold_pattern(pattern))


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (
            [f"model.layers.{i}.self_attn.q_proj.weight" for i in range(32)],
            ["model.layers.{0..31}.self_attn.q_proj.weight"],
        ),
        (
            [f"l.{i}.experts.{e}.up" for i in range(3, 61) for e in range(256)],
            ["l.{3..60}.experts.{0..255}.up"],
        ),
        (["a.0", "a.1", "a.2", "a.5"], ["a.{0..2,5}"]),
        (["a.1", "a.0"], ["a.{0,1}"]),
        ([f"a.{i}" for i in range(0, 31, 2)], ["a.{0..30..2}"]),
        (["a.1", "a.5", "a.9", "a.10", "a.11", "a.12"], ["a.{1..9..4,10..12}"]),
        (["a.7"], ["a.7"]),
        (["w1.weight", "w2.weight", "w3.weight"], ["w1.weight", "w2.weight", "w3.weight"]),
        (["0.w1", "0.w2", "1.w1", "1.w2"], ["{0,1}.w1", "{0,1}.w2"]),
        (["a.0.b.0", "a.0.b.1", "a.1.b.0"], ["a.0.b.{0,1}", "a.1.b.0"]),
        (["a.00", "a.0", "a.01", "a.1"], ["a.00", "a.0", "a.01", "a.1"]),
        (["x.0", "x.0", "x.1"], ["x.{0,1}", "x.0"]),
        (["{0..3}", "a{.1", "a{.2"], ["{{0..3}}", "a{{.{1,2}"]),
        (["", "."], ["", "."]),
        ([], []),
    ],
)
def test_names_fold_to_known_patterns(names: list[str], patterns: list[str]) -> None:
    assert sorted(x.pattern for x in fold_names(names)) == sorted(patterns)
    assert unfold_folded(names) == Counter(names)


@given(st.lists(NAME | LAYERS, max_size=60))
def test_folded_names_unfold_to_themselves(names: list[str]) -> None:
    assert unfold_folded(names) == Counter(names)
    assert sum(x.copies for x in fold_names(names)) == len(names)


@given(st.lists(st.text(max_size=12), max_size=20))
def test_any_text_unfolds_to_itself(names: list[str]) -> None:
    assert unfold_folded(names) == Counter(names)


@given(st.lists(st.tuples(LAYERS, st.integers(0, 2)), max_size=60))
def test_only_names_with_equal_columns_are_folded(rows: list[tuple[str, int]]) -> None:
    names, keys = [x for x, _ in rows], [x for _, x in rows]
    folded = fold_groups(names, keys)
    assert Counter(
        (name, keys[x.first]) for x in folded for name in unfold_pattern(x.pattern)
    ) == Counter(rows)
    assert [x.first for x in folded] == sorted(x.first for x in folded)
    assert all(names[x.first] in set(unfold_pattern(x.pattern)) for x in folded)


def deepseek() -> list[str]:
    experts = [
        f"model.layers.{i}.mlp.experts.{e}.{x}_proj.weight"
        for i in range(3, 61)
        for e in range(256)
        for x in ("down", "gate", "up")
    ]
    return experts + [
        f"model.layers.{i}.self_attn.{x}.weight" for i in range(61) for x in "abcdefghijklmn"
    ]


HOSTILE = {
    "deepseek": deepseek(),
    "shuffled": sorted(deepseek(), key=lambda x: hash((x, 7))),
    "nothing alike": [f"{i:x}{'.' * (i % 7)}" for i in range(45_000)],
    "one name": ["model.layers.0.weight"] * 45_000,
    "one name among others": [*(f"a.{i}" for i in range(20_000)), *(["a.7"] * 20_000)],
    "a scattered lattice": [
        f"a.{i}.{j}" for i in range(300) for j in range(300) if (i * j + i) % 3
    ],
    "many numbers": [".".join(str(i >> k & 1) for k in range(15)) for i in range(1 << 15)],
    "a megabyte of dots": ["." * (1 << 20), "." * (1 << 20) + "1"],
    "a megabyte of numbers": [".".join("0123456789" * 50_000), ".".join("1234567890" * 50_000)],
    "a megabyte of digits": ["a." + "1" * (1 << 20), "a." + "2" * (1 << 20)],
    "braces": ["{" * (1 << 16), "}" * (1 << 16)],
}


MAX_CALLS = 40
"""Function calls that folding may make for each name, or for each 64 characters of a long one."""


@pytest.mark.parametrize("case", HOSTILE)
def test_folding_costs_few_calls_per_name(case: str) -> None:
    names = HOSTILE[case]
    units = len(names) + sum(map(len, names)) // 64
    folded = within_calls(MAX_CALLS * units, lambda: fold_names(names))
    assert sum(x.copies for x in folded) == len(names)
    assert unfold_folded(names) == Counter(names)


def test_deepseek_names_fold_to_one_screen() -> None:
    assert len(fold_names(deepseek())) == 3 + 14
