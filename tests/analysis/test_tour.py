"""The tour of a model: its stops, what they add to the count, their code, and the lesson about them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import takewhile

import pytest

import llamath
from llamath.analysis.learn.course import exercises_of, find_lesson, study_of
from llamath.analysis.learn.diagnosis import check_answer
from llamath.analysis.learn.tour.stop_questions import named_mistakes, stop_exercises
from llamath.analysis.learn.tour.tour import Tour, tour_of
from llamath.core.blocks import MLP, ClampedMLP, MoE
from llamath.core.tree import CountedOnly, fold_blocks
from support.tour_presets import PRESETS

# of the model's own kind: stops that it has, and stops that it lacks
STOPS = {
    "llama-3-8b": ("rope scores", "biases qk_norm window router compress state conv positions"),
    "gpt2": ("positions biases", "rope alibi router no_positions window next_layer"),
    "qwen2.5-0.5b": ("biases rope", "qk_norm window"),
    "qwen3-8b": ("qk_norm", "biases window"),
    "gemma-3-12b": ("window qk_norm post_norm", "biases router sinks alibi"),
    "olmo-2-7b": ("post_norm qk_norm", "norm"),
    "falcon-7b": ("parallel rope", "biases alibi"),
    "bloom-560m": ("alibi biases", "rope positions no_positions"),
    "llama-4-scout": ("window no_positions router shared", "sinks biases"),
    "smollm3-3b": ("no_positions rope", "window"),
    "gpt-oss-20b": ("sinks window router biases", "shared gate_up down"),
    "mixtral-8x7b": ("router experts next_layer", "shared gate_up down"),
    "deepseek-v3": ("compress expand router shared gate_up", "qkv window indexer"),
    "deepseek-v3.2": ("indexer", "qkv"),
    "mamba-2.8b": (
        "mixer_in conv state mixer_out",
        "scores cache attention_out gate_up no_positions",
    ),
    "lfm2-1.2b": ("conv cache", "state"),
    "qwen3-next-80b-a3b": ("state attention_gate cache", "biases window"),
    "qwen2-vl-2b": ("apart", "encoder"),
}


@cache
def tour(name: str) -> Tour:
    return tour_of(llamath.load(name))


def test_forty_presets_of_many_kinds_are_toured() -> None:
    assert len(set(PRESETS)) == len(PRESETS) >= 40


@pytest.mark.parametrize("name", PRESETS)
def test_stops_add_up_to_the_total(name: str) -> None:
    """Against the sum over each weight; every weight that counts is of one stop."""
    model, stops = llamath.load(name), tour(name).stops
    assert sum(x.adds.value for x in stops) == sum(x.parameters for x in model.weights)
    assert stops[-1].so_far == model.parameters.total
    so_far = 0
    for x in stops:
        so_far += x.adds.value
        assert x.so_far == so_far and x.adds.value >= 0
        assert x.what and x.why and "None" not in f"{x.title} {x.what} {x.why} {x.formula}"
    used = Counter(path for weights in tour(name).weights.values() for path in weights)
    assert used and set(used.values()) == {1}
    assert len({x.name for x in stops}) == len(stops)


@pytest.mark.parametrize("name", PRESETS)
def test_lines_of_stops_stand_in_the_generated_file(name: str) -> None:
    stops = tour(name).stops
    try:
        lines = llamath.code(name).code
    except llamath.LlamathError:
        assert not any(x.code for x in stops)
        return
    for stop in stops:
        numbers = [x.line for x in stop.code]
        assert numbers == sorted(set(numbers))
        for x in stop.code:
            whole = lines[x.line - 1].text
            assert x.text.strip() and whole.startswith(x.text.partition("  # ")[0])
            has_sizes = re.search(r"  # .*( = [\[(]|\d parameters)", x.text)
            as_written = re.sub(r" +  # ", "  # ", whole)  # without the room of left-out shapes
            assert not has_sizes and (x.text == as_written or re.search(r"  # .*\d", whole)), x.text
        if stop.name in (
            "rope",
            "scores",
            "router",
            "state",
            "next_token",
        ):  # not cut in the middle
            for x in (x.line for x in stop.code if x.text.startswith("def ")):
                body = takewhile(lambda i: lines[i].text[:1] in ("", " "), range(x, len(lines)))
                last = max(i for i in body if lines[i].text)
                assert lines[last].text.lstrip().startswith("return ") and last + 1 in numbers
    weighty = [x for x in stops if x.adds.value and x.name not in ("apart", "qk_norm")]
    assert all(x.code for x in weighty), [x.name for x in weighty if not x.code]


def test_lines_are_of_weights_and_operations_of_their_stop() -> None:
    lines = llamath.code("llama-3-8b").code
    by_name = {x.name: [lines[y.line - 1] for y in x.code] for x in tour("llama-3-8b").stops}
    weights = {name: {w for x in found for w in x.weights} for name, found in by_name.items()}
    assert {"embed.weight"} == weights["embedding"]
    assert {f"layers.{{l}}.attn.{x}.weight" for x in "qkv"} == weights["qkv"]
    assert {"norm.weight", "head.weight"} == weights["logits"]
    assert any("update_cache" in x.operations for x in by_name["cache"])
    assert {x.block for x in by_name["rope"]} == {"rope", "Attention"}
    assert any("mask = j <= i" in x.text for x in by_name["softmax"])
    assert any("generate" in x.text for x in by_name["next_token"])


@pytest.mark.parametrize("name", STOPS)
def test_stops_are_those_of_what_the_model_has(name: str) -> None:
    has, lacks = (set(x.split()) for x in STOPS[name])
    found = {x.name for x in tour(name).stops}
    assert has <= found
    assert not lacks & found


def test_stops_follow_the_path_of_a_token() -> None:
    names = [x.name for x in tour("llama-3-8b").stops]
    path = (
        "token embedding norm qkv rope scores softmax mix attention_out gate_up down logits "
        "next_token cache"
    )
    assert names == path.split()
    added = {x.name: x.adds for x in tour("llama-3-8b").stops}
    assert added["qkv"].symbols == "L·(H·h·d + 2·K·h·d)"
    assert added["qkv"].value == 32 * (4096 * 4096 + 2 * 1024 * 4096)
    assert added["scores"].value == added["cache"].value == 0


def test_tied_head_adds_nothing_and_says_so() -> None:
    for name, is_tied in (("llama-3.2-1b", True), ("gpt2", True), ("llama-3-8b", False)):
        stop = next(x for x in tour(name).stops if x.name == "logits")
        assert ("adds 0" in stop.what) == is_tied
        vocab = int(llamath.load(name).tree.vocab)
        assert (stop.adds.value < vocab) == is_tied


def test_steps_and_shapes_are_those_of_the_trace() -> None:
    for name in ("llama-3-8b", "deepseek-v3", "qwen3-next-80b-a3b"):
        stages = {
            str(x["layer"]) if x["name"] == "layers" else x["name"]: x["steps"]
            for x in llamath.trace(name).to_json()["prompt"]["stages"]
        }
        for stop in tour(name).stops:
            steps = {x["name"]: x for x in stages[stop.place]}
            assert stop.steps and set(stop.steps) <= steps.keys()
            assert [x.name for x in stop.shapes] == list(stop.steps[: len(stop.shapes)])
            for shape in stop.shapes:
                numbers = shape.numbers.replace(",", "").split()
                sizes = steps[shape.name]["shape"][-len(numbers) :]
                fixed = [(x, str(y)) for x, y in zip(numbers, sizes, strict=True) if x.isdigit()]
                assert all(x == y for x, y in fixed), shape


@pytest.mark.parametrize("name", PRESETS)
def test_formulas_are_those_of_the_blocks(name: str) -> None:
    """Against the fields of the tree: activations, clamps, biases, factors and caps."""
    tree, stops = llamath.load(name).tree, {x.name: x for x in tour(name).stops}
    for stop in (stops[x] for x in ("gate_up", "router", "experts", "shared") if x in stops):
        blocks = [x.block for x in fold_blocks(tree.layers[int(stop.place)], 1)]
        kind = MLP if stop.name == "gate_up" else MoE
        block = next(x for x in blocks if isinstance(x, kind))
        if stop.name == "router":
            assert f"p = {block.scoring}(W_router x" in stop.formula
            assert (" + b_router" in stop.formula) == (block.router.bias is not None)
            continue
        parts_of = {"gate_up": lambda x: x, "experts": lambda x: x.experts[0]}
        mlp = parts_of.get(stop.name, lambda x: x.shared)(block)
        if isinstance(mlp, ClampedMLP):
            parts = [f"sigmoid({mlp.alpha:g} · g)", "(u + 1)", f", {mlp.limit:g})"]
        else:
            parts = [f"{mlp.activation}({'W_up' if mlp.gate is None else 'W_gate'} x"]
        assert all(x in stop.formula for x in parts), stop.formula
        assert (" + b_up" in stop.formula) == (mlp.up.bias is not None)
    says = stops["logits"]
    assert ("tanh" in says.formula) == ("capped" in says.what) == (tree.softcap is not None)
    if tree.softcap is not None:
        assert says.formula.startswith(f"logits = {tree.softcap:g} · tanh(")
    scale = float(tree.embed.scale or 1)
    assert ("·" in stops["embedding"].formula) == ("multiplied" in stops["embedding"].what)
    assert ("·" in stops["embedding"].formula) == (scale != 1)


def test_a_counted_model_has_no_tour() -> None:
    with pytest.raises(CountedOnly):
        tour("apertus-8b")


def test_lesson_tells_the_stops_and_asks_for_them() -> None:
    lesson = find_lesson("token")
    for name in ("llama-3-8b", "deepseek-v3", "mamba-2.8b"):
        study = study_of(lesson, name)
        stops = tour(name).stops
        text = list(lesson.explain(study))
        assert len(text) == len(stops)
        assert all(x.what in y and x.why in y for x, y in zip(stops, text, strict=True))
        asked = {x.id.partition("/")[2]: int(x.answer) for x in exercises_of(lesson, study)}
        assert {x.name: x.adds.value for x in stops if x.adds.value}.items() <= asked.items()
        assert asked.get("scores", 0) == 0
    assert "forward pass" in lesson.lacks(study_of(find_lesson("total"), "apertus-8b"))


@pytest.mark.parametrize("name", PRESETS)
def test_each_stop_asks_and_its_mistakes_are_wrong(name: str) -> None:
    for stop, exercises in stop_exercises(tour(name)).items():
        assert exercises, stop
        assert len({x.id for x in exercises}) == len(exercises)
        for x in exercises:
            assert int(x.answer) > 0 and not x.answer.variables, x.id
            assert len(x.reason.split()) > 3 and x.reason[-1] == "." and x.reason[0].isupper()
            says = [x.below, x.above]
            assert all(len(y.split()) > 3 for y in says) if x.kind != "weights" else not any(says)
            assert x.answer.letters.keys() <= x.letters.keys()
            assert check_answer(x, x.answer.symbol).right, (x.id, x.answer.symbol)
            for number, mistake in named_mistakes(x):
                says = mistake.explain(x.study)
                found = check_answer(x, f"{int(number)}")
                assert not found.right and "{" not in says
                assert says in {y for z in found.findings for y in z.sentences}, x.id
