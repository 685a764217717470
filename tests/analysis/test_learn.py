"""Lessons: every answer is the tree's number, every mistake is recovered from its number, and what wrong answers get."""

from __future__ import annotations

import os
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import llamath
from llamath.analysis.learn.account import Account
from llamath.analysis.learn.answer_parser import NotANumber, parse_answer
from llamath.analysis.learn.course import LESSONS, exercises_of, find_lesson, study_of
from llamath.analysis.learn.diagnosis import (
    MISTAKES,
    check_answer,
    find_mistakes,
    two_mistakes,
    wrong_accounts,
)
from llamath.analysis.learn.exercise import Exercise
from llamath.analysis.learn.lessons.quiz_lesson import plate_parts
from llamath.analysis.learn.study import ModelStudy
from llamath.utils.errors import LlamathError

GOLDEN = Path(__file__).parents[1] / "golden" / "wrong-answers.txt"
MODELS = (
    *("llama-1-7b", "llama-2-70b", "llama-3-8b", "llama-3.1-405b", "llama-3.2-1b", "mistral-7b"),
    *("mixtral-8x7b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b", "gemma-2-9b", "gemma-3-12b"),
    *("gpt2", "classic-405b", "deepseek-v3", "gpt-oss-20b", "phi-3-mini", "qwen3-next-80b-a3b"),
    *("mamba-2.8b", "falcon-7b"),
)
LETTERS = {"d": 4096, "H": 32, "h": 128, "K": 8, "F": 14336}


@cache
def exercises(slug: str) -> tuple[Exercise, ...]:
    study = ModelStudy.of(llamath.load(slug))
    return tuple(
        x for lesson in LESSONS if not lesson.lacks(study) for x in exercises_of(lesson, study)
    )


@cache
def exercise(slug: str, name: str) -> Exercise:
    lesson = find_lesson(name.split("/")[0])
    found = {x.id: x for x in exercises_of(lesson, study_of(lesson, slug))}
    return found[name]


# answers as learners write them


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("16,777,216", "", 2**24), ("4096*4096", "", 2**24), ("4096 x 4096", "", 2**24),
        ("d*H*h", "", 2**24), ("dHh", "", 2**24), ("d·H·h", "", 2**24), ("d²", "", 2**24), ("2^24", "", 2**24),
        ("2**24", "", 2**24), ("16 777 216", "", 2**24), ("16_777_216", "", 2**24), ("= 16777216", "", 2**24),
        ("(H+2*K)*h*d", "", 48 * 128 * 4096), ("−805,306,368", "", -805_306_368), ("d/H", "", 128),
        ("8 billion", "", 8 * 10**9), ("1 GiB", "bytes", 2**30), ("1.07 GB", "bytes", 1_070_000_000),
        ("8B", "bytes", 8), ("128k", "tokens", 131_072), ("128k", "", 128_000), ("50%", "", Fraction(1, 2)),
        ("16.06 TFLOPs", "FLOPs", 16_060_000_000_000), ("2^2^3", "", 256), ("-2^2", "", -4), ("1e9", "", 10**9),
    ],
)  # fmt: skip
def test_answers_are_read_as_learners_write_them(text: str, unit: str, value: Fraction) -> None:
    assert parse_answer(text, LETTERS, unit).value == value


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "nothing", "9**9**9", "2**201", "10**200*10**200", "1/0", "1e999", "1" * 41, "1" * 1000, "(" * 100 + "1",
        "((((((((((((((((((((((1))))))))))))))))))))))", "__import__('os')", "d.__class__", "1,2", "3513,984",
        "1 2", "d d q", "lambda: 1", "１２", "--" * 50 + "1", "²", "1%%", "\x00", "d'",
        "1e0000007", "2⁰⁰⁰⁰⁷",
    ],
)  # fmt: skip
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(NotANumber):
        parse_answer(text, LETTERS)


def test_a_rounded_answer_stands_for_what_rounds_to_it() -> None:
    total = exercise("llama-3-8b", "total/total")
    for text in ("8.03B", "8.0303 B", "8,030.26M", "8030261248", "8.0e9"):
        assert check_answer(total, text), text
    for text in ("8.04B", "8.02B", "8B", "8030000000", "8.031B", "8.03M", "-8.03B"):
        assert not check_answer(total, text), text


CHANCE = {
    "H·h·d": "Right.",
    "d²": "Right.",  # d = H·h is usual
    "32·h·d": "Right.",  # 32 may be H
    "L·h·d": "Not right: the number is right, but only because L = H here; ",
    "4·K·h·d": "Right.",  # four queries share a key
    "V·L·h·d/V": "Not right: the number is right, but only because L = H here; ",
    "L·h·L·h": "Not right: the number is right, but only because L = H here; ",
    "L·K·h": "Not right.",  # of no mistake, though its number is one
    "H·h·d/(L-31)": "Not right: the number is right, but only for these sizes; ",
    "H·h·d·103/(135-L)": "Right.",  # no number where L = 135
}


@pytest.mark.parametrize("text", CHANCE)
def test_a_formula_is_not_right_by_chance(text: str) -> None:
    """In Llama 3 8B there are as many layers as heads."""
    found = check_answer(exercise("llama-3-8b", "matrix/attn.q"), text)
    assert found.verdict.startswith(CHANCE[text]), found.verdict
    assert bool(found) == (CHANCE[text] == "Right.")


# the course


def test_lessons_stand_in_the_order_of_the_course() -> None:
    assert [x.name for x in LESSONS] == (
        "matrix head attention mlp norms layer embedding total modelargs context difference cache flops bytes "
        "experts design latent windows recurrence token quiz"
    ).split()
    for lesson in LESSONS:
        study = study_of(lesson, None)
        assert len(exercises_of(lesson, study)) >= 3, lesson.name
        assert all(x.strip() and "{" not in x for x in lesson.explain(study))


@pytest.mark.parametrize("slug", MODELS)
def test_answers_are_numbers_of_the_tree(slug: str) -> None:
    """Against sums over each weight of the model, its memory, and its FLOPs, which lessons do not call."""
    model = llamath.load(slug).text
    found = {x.id: int(x.answer) for x in exercises(slug)}
    p = model.parameters
    assert found["total/total"] == sum(x.parameters for x in model.weights) == p.total
    assert (
        found["total/without-embeddings"] == p.without_embeddings
        and found["total/blocks"] == p.blocks
    )
    assert found.get("total/without-head", p.total) == p.without_head
    assert found.get("total/tied-twice", p.total) == p.tied_counted_twice
    assert found.get("total/active", p.total) == p.active
    assert found["bytes/bf16"] == 2 * p.total
    shapes = {x.pattern.removeprefix("layers.{l}."): x.shape for x in model.weights}
    for name, number in found.items():
        if name.startswith("matrix/") and not name.endswith("outputs"):
            shape = shapes[f"{name.removeprefix('matrix/')}.weight"]
            assert number == int(shape[0]) * int(shape[1]), name
    if "cache/token" in found:
        for tokens in (
            1,
            *(int(x.rpartition("-")[2]) for x in found if x.startswith("cache/context-")),
        ):
            cache = llamath.memory(model, context=tokens, kv_dtype="bf16").cache
            grown = int(cache.bytes) - int(cache.state)
            assert grown == found["cache/token" if tokens == 1 else f"cache/context-{tokens}"]
    if "flops/token" in found:
        flops = llamath.flops(model, context=1, batch=1)
        assert found["flops/token"] == int(sum(flops.decode.weights.values()))


@pytest.mark.parametrize("slug", MODELS)
def test_every_answer_in_letters_or_digits_is_right(slug: str) -> None:
    for x in exercises(slug):
        assert check_answer(x, f"{int(x.answer):,}") and check_answer(x, x.answer.symbol), x.id


@pytest.mark.parametrize("slug", MODELS)
def test_every_mistake_is_recovered_from_its_number(slug: str) -> None:
    recovered = 0
    for x in exercises(slug):
        singles = wrong_accounts(x)
        for number in {wrong.number for _, wrong in singles}:
            answer = parse_answer(f"{number.numerator}/{number.denominator}")
            findings = find_mistakes(x, answer)
            expected = {mistake.name for mistake, wrong in singles if wrong.number == number}
            found = {name for y in findings for name in y.mistakes}
            assert found & expected, (x.id, number)
            assert len(findings) == 6 or expected <= found, (x.id, number, expected - found)
            assert [y.bits for y in findings] == sorted(y.bits for y in findings)
            recovered += len(expected)
    assert recovered > 100


@pytest.mark.parametrize("slug", MODELS)
def test_question_can_be_read_by_itself(slug: str) -> None:
    for x in exercises(slug):
        assert not x.text.startswith(("And ", "Then ", "It ", "They ")), x.text
        assert " such " not in x.text, x.text


@pytest.mark.parametrize("slug", MODELS)
def test_quiz_asks_ten_questions_with_different_answers(slug: str) -> None:
    asked = [x for x in exercises(slug) if x.id.startswith("quiz/")]
    assert [x.id for x in asked] == [f"quiz/{i}" for i in range(1, 11)]
    assert all(x.core for x in asked) and len({int(x.answer) for x in asked}) == 10
    others = {(x.text, int(x.answer)) for x in exercises(slug) if not x.id.startswith("quiz/")}
    assert {(x.text, int(x.answer)) for x in asked} <= others


@pytest.mark.parametrize("slug", MODELS)
def test_parts_of_the_picture_sum_to_the_total(slug: str) -> None:
    model = llamath.load(slug).text
    study = ModelStudy.of(model)
    parts = plate_parts(study)
    assert sum(int(x.adds.value) for x in parts) == model.parameters.total
    assert len({x.exercise.id for x in parts}) == len(parts)
    whole, layers = parts[-1], [x for x in parts if x.exercise.id.startswith("plate/layer")]
    assert int(whole.exercise.answer) == model.parameters.total and not whole.paths
    if model.parameters.per_layer is not None:
        assert [int(x.exercise.answer) for x in layers] == [model.parameters.per_layer]
    sizes: Counter[tuple[str, str]] = Counter()  # of a weight in one layer, all experts together
    for y in model.weights:
        inside = y.pattern.removeprefix("layers.{l}.")
        sizes[inside, str(y.indices[0]) if inside != y.pattern else ""] += y.parameters
    for x in parts:
        layer = x.layer if x.layer.isdigit() else ""
        if x.paths:
            assert int(x.exercise.answer) == sum(sizes[path, layer] for path in x.paths), x.name


def test_changed_account_has_the_sum_of_its_products() -> None:
    for x in exercises("qwen2.5-0.5b"):
        for mistake, wrong in wrong_accounts(x):
            anew = Account(products=wrong.products, scale=wrong.scale)
            assert wrong.number == anew.number == wrong.scale * int(wrong.value), mistake.name


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("matrix/attn.k", "a single K and V head"),  # one head for all
        ("matrix/mlp.up", "a gate that is not there"),
        ("total/without-head", "both tables forgotten"),
        ("design/outside", "norms forgotten"),  # the final norm
    ],
)
def test_one_mistake_has_one_name(name: str, other: str) -> None:
    slug = "classic-405b" if name.startswith("design") else "llama-3-8b"
    made = {mistake.name for mistake, _ in wrong_accounts(exercise(slug, name))}
    assert made and other not in made and other in {x.name for x in MISTAKES}


def test_there_are_forty_mistakes_and_each_changes_an_answer() -> None:
    made = {
        mistake.name
        for slug in (*MODELS, "bloom-560m", "deepseek-v2-lite")
        for x in exercises(slug)
        for mistake, _ in wrong_accounts(x)
    }
    assert len(MISTAKES) >= 40
    assert {x.name for x in MISTAKES} <= made
    assert sum(bool(x.made_in) for x in MISTAKES) >= 20


@pytest.mark.parametrize("question", ["context/double", "context/blocks"])
def test_sizes_multiplied_are_diagnosed_in_the_whole_and_its_layers(question: str) -> None:
    checked = llamath.check(llamath.lesson("context")[question], "205,621,559,296")
    assert not checked and "32 heads × 766 × 2,048 tokens × 4,096" in checked.lines[1]


def test_two_mistakes_together_are_found() -> None:
    for slug, name in (("llama-3-8b", "total/total"), ("llama-3.1-70b", "cache/token")):
        x = exercise(slug, name)
        pairs = [
            (pair, wrong)
            for pair, wrong in two_mistakes(x, wrong_accounts(x))
            if wrong.number.denominator == 1
        ]
        assert len(pairs) > 50
        for pair, wrong in pairs[:: len(pairs) // 3]:
            findings = find_mistakes(x, parse_answer(str(int(wrong.number))))
            assert findings and (
                len(findings) == 6
                or {y.name for y in pair} in [set(y.mistakes) for y in findings]
                or len(findings[0].mistakes) == 1
            ), pair


def test_llama_3_with_all_heads_is_told_so() -> None:
    checked = check_answer(exercise("llama-3-8b", "total/total"), "8835567616")
    assert checked.lines[1] == "All 32 heads have their own K and V here; Llama 3 8B has 8."


def test_a_model_without_the_block_has_no_lesson() -> None:
    for name, slug, words in (
        ("experts", "llama-3-8b", "no experts"),
        ("head", "mamba-2.8b", "matrices q, k and v"),
        ("latent", "gpt2", "no latent attention"),
        ("modelargs", "gpt2", "ModelArgs"),
    ):
        with pytest.raises(LlamathError, match=words) as error:
            study_of(find_lesson(name), slug)
        assert "it has" in error.value.hint and name not in error.value.hint.split()
    with pytest.raises(LlamathError) as error:
        find_lesson("atention")
    assert "attention" in error.value.hint


@pytest.mark.parametrize(
    "slug",
    [
        *(
            "zamba-7b",
            "zamba2-7b",
            "jamba-v0.1",
            "openelm-270m",
            "kimi-k3",
            "deepseek-v3.2",
            "lfm2-1.2b",
        ),
        *(
            "nemotron-h-8b",
            "xglm-564m",
            "llama-4-scout",
            "minimax-text-01",
            "qwen2-vl-2b",
            "phi-3.5-moe",
        ),
    ],
)
def test_unusual_models_have_lessons_without_gaps(slug: str) -> None:
    found = exercises(slug)
    assert {"matrix", "layer", "embedding", "total", "bytes"} <= {x.id.split("/")[0] for x in found}
    assert len({x.id for x in found}) == len(found) > 20
    for x in found:
        assert "{" not in "".join((x.text, x.hint, *x.solution)) and " None" not in x.text, x.id
        assert check_answer(x, str(int(x.answer))), x.id


ANSWERS = """
llama-3-8b total/total 8835567616|8,030,257,152|7504924672|205621559296|205B|210990268416|6.98B|8.03B|8.04B|8B|8030000000|8.84B|6,738,415,616|7.50B|16060522496
llama-3-8b layer/one 218103808|243277824|201334784|6979584000|16777216|159391744|226500608|218.1M|209723392|219 million
llama-3-8b norms/layer 8.19M|8192000|4096|16384|33554432|8,192
llama-3-8b matrix/attn.k 16777216|5120|4194304|1048576|4096*1024*32
llama-3-8b matrix/mlp.down/outputs 14336|4096
llama-3-8b mlp/all 117440512|201326592|58720256|134217728|50331648|135266304
llama-3-8b mlp/width 10922|14198|11008|16384|13312|14,336
llama-3.1-70b cache/token 163840|655360|2621440|20971520|4096|1310720|327,680|320 KiB
llama-3.1-70b cache/context-131072 39.06 GiB|40 GB|42.95 GB|40.00 GiB|320 GiB|343.6 GB|21.47 GB|20 GiB|85.9 GB|244 GB
llama-3-8b bytes/bf16 8.03 GB|14.96 GB|16.06 GiB|32.12 GB|128.5 GB|16 GB|15 GiB
llama-3-8b flops/token 7.5 GFLOPs|45.03 GFLOPs|16.06 GFLOPs|15.0 GFLOPs|16060522496
mixtral-8x7b total/total 12879925248|46.7B|56B|7241732096
mixtral-8x7b experts/active 46702792704|12.9B
llama-3.2-1b total/total 1498482688|973146112
deepseek-v3 cache/token 35136|62464|1748992|4,997,120
deepseek-v3 total/total 37.6B|671026404352
gemma-3-12b windows/context-131072 51.5 GB|1.6 GB
llama-1-7b context/double 13476831232|205B
llama-3-8b difference/attention 805306368|0|-402653184
llama-3-8b difference/all 2097152000|-1291845632|1.29B|1291841536
classic-405b design/total 403,308,544,000|605 billion
gpt2 mlp/all 3*4*d*d|7077888
"""


def test_what_wrong_answers_get_is_reviewed() -> None:
    lines = []
    for row in ANSWERS.strip().splitlines():
        slug, name, texts = row.split(" ", 2)
        lines.append(f"{name}, {slug}: {exercise(slug, name).text}")
        for text in texts.split("|"):
            checked = check_answer(exercise(slug, name), text)
            lines += [f"    {text}", *(f"        {x}" for x in checked.lines)]
    written = "\n".join(lines) + "\n"
    assert sum(not x.startswith("     ") and x.startswith("    ") for x in lines) >= 60
    if os.environ.get("LLAMATH_GOLDEN"):
        GOLDEN.write_text(written)
    assert written == GOLDEN.read_text(), "LLAMATH_GOLDEN=1 writes it anew; read the difference"
