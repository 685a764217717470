"""The worked examples of the tour: their numbers are those of torch, and follow from each other as they say."""

from __future__ import annotations

import json
import os
from functools import cache
from itertools import combinations
from typing import Any

import pytest
import torch

import llamath
from llamath.analysis.learn.tour.stop_places import OTHER
from llamath.analysis.learn.tour.tour import tour_of
from llamath.native.engine import NativeSession, Row
from llamath.native.lowering import NotExpressible
from llamath.web.page_data.live.tour_example import examples_of
from llamath.web.page_data.live.worked_steps import WORKED_FILE, _table
from support.native_models import native_model
from support.tour_presets import PRESETS
from support.worked_steps import IDS, modules, worked_steps


def rounded(x: Any) -> Any:
    """Return numbers to four digits."""
    if isinstance(x, dict):
        return {name: rounded(y) for name, y in x.items()}
    if isinstance(x, (list, tuple)):
        return [rounded(y) for y in x]
    return float(f"{x:.4g}") + 0.0 if isinstance(x, float) else x


def flat(x: Any) -> list[Any]:
    """Return numbers and texts in one list."""
    if isinstance(x, dict):
        return [z for name, y in x.items() for z in (name, *flat(y))]
    return [z for y in x for z in flat(y)] if isinstance(x, (list, tuple)) else [x]


def test_worked_numbers_are_those_of_torch() -> None:
    found = worked_steps()
    if os.environ.get("LLAMATH_GOLDEN"):
        models = (
            f'"{name}": {{\n'
            + ",\n".join(
                f'"{x}": {json.dumps(rounded(y), ensure_ascii=False)}' for x, y in stops.items()
            )
            + "\n}"
            for name, stops in found.items()
        )
        WORKED_FILE.write_text("{\n" + ",\n".join(models) + "\n}\n", encoding="utf-8")
    kept = json.loads(WORKED_FILE.read_text(encoding="utf-8"))
    for x, y in zip(flat(kept), flat(found), strict=True):
        if isinstance(y, float):
            y = pytest.approx(y, rel=1e-3, abs=1e-4)
        assert x == y, "LLAMATH_GOLDEN=1 writes it anew"


def kept() -> dict[str, Any]:
    """Return the numbers in the package."""
    found: dict[str, Any] = json.loads(WORKED_FILE.read_text(encoding="utf-8"))
    return {name: {x: y for x, y in own.items() if x != "type"} for name, own in found.items()}


def recorded(stop: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what was recorded at a stop, with the model's name."""
    found = [(x, y[stop]["recorded"]) for x, y in kept().items() if "recorded" in y.get(stop, {})]
    assert found
    return found


def near(x: Any) -> Any:
    """Numbers have four digits."""
    return pytest.approx(x, rel=3e-3, abs=3e-3)


def test_router_weights_follow_from_shown_logits() -> None:
    scorings = {"sigmoid": torch.sigmoid, "softmax": lambda x: x.softmax(-1)}
    beaten = set()
    for model, x in recorded("router"):
        scores = scorings[x["scoring"]](torch.tensor(x["logits"]))
        weights = scores[x["chosen"]] / (scores[x["chosen"]].sum() if x["normed"] else 1)
        assert (weights * x["factor"]).tolist() == near(x["weights"]), model
        best = scores.topk(len(x["chosen"])).indices.tolist()
        if set(best) != set(x["chosen"]):
            beaten.add(model)
            assert x["correction"] or x["groups"], model
    assert "DeepSeek V3" in beaten, "its bias and groups matter"


def test_chosen_experts_add_up_with_their_weights() -> None:
    routed = dict(recorded("router"))
    for model, x in recorded("experts"):
        pairs = {e: w for e, w, _ in x["each"]}
        own = zip(routed[model]["chosen"], routed[model]["weights"], strict=True)
        assert pairs == pytest.approx(dict(own), rel=1e-3), model
        if model != "Llama 4":  # which scales the input
            total = sum(w * torch.tensor(y) for _, w, y in x["each"])
            assert total.tolist() == near(x["sum"]), model


def test_states_follow_the_formula_of_their_stop() -> None:
    seen = set()
    for model, x in recorded("state"):
        seen.add(x["scan"])
        t = {name: torch.tensor(y) for name, y in x.items() if name != "scan"}
        state = t["before"]
        if x["scan"] == "gated_delta_rule":
            state = t["g"].exp().reshape(-1, 1) * state
            state = state + torch.outer(t["k"], t["beta"] * (t["v"] - state.T @ t["k"]))
            y = state.T @ t["q"]
        elif x["scan"] == "ssm_scan":
            decay = (-t["a_log"].exp() * t["dt"]).exp()
            state = decay * state + t["dt"] * torch.outer(t["x"], t["b"])
            y = state @ t["c"]
        elif x["scan"] == "selective_scan":
            state = (-t["a_log"].exp() * t["dt"]).exp() * state + t["dt"] * t["x"] * t["b"]
            y = state @ t["c"] + t["skip"] * t["x"]
        else:
            faded = t["after"] - torch.outer(t["k"], t["v"])
            ratio = faded / state
            assert ratio.flatten().tolist() == pytest.approx([float(ratio[0, 0])] * 4, rel=0.02)
            state, y = t["after"], t["after"].T @ t["q"]
        assert state.tolist() == [near(z) for z in x["after"]] or state.tolist() == near(x["after"])
        assert y.tolist() == near(x["y"]), model
    assert len(seen) == 4


OF_KEYS = ("scores", "alibi", "window", "sinks", "no_positions", "softmax", "mix")
"""Stops of attention to keys."""


@cache
def shares_of_the_engine() -> dict[str, list[float]]:
    """Return the attention of the last token in the first head of each model that the engine runs."""
    found, shown = dict[str, list[float]](), {x for stop in OF_KEYS for x, _ in recorded(stop)}
    for name, _, module in modules():
        if name not in shown:
            continue
        try:
            native = native_model(module, keep=True)
        except NotExpressible:
            continue
        session = NativeSession(native, 1, len(IDS))
        session.reserve(len(IDS), 0)
        session.run([Row(0, list(IDS), 0)], all_logits=True)
        weights = [x for x in native.program.results if x.weights]
        numbers, shape = session.attention(weights[-1 if name == "Kimi Linear" else 0].op, 3)
        found[name] = list(numbers)[-shape[-2] * shape[-1] :][: len(IDS)]
    return found


@pytest.mark.parametrize("stop", OF_KEYS)
def test_shares_of_keys_are_those_of_the_engine(stop: str) -> None:
    for model, x in recorded(stop):
        first = shares_of_the_engine().get(model)
        if first is None:
            assert model == "MiniMax"
            continue
        table = _table(model, stop, kept()[model][stop])
        if stop == "scores" and table["columns"][-1] != "softmax":
            assert any(x[y] is not None for y in ("slope", "sink", "window", "chunk")), model
            continue  # what changes the scores has a stop of its own
        rows = table["rows"]
        texts = {"softmax": rows[-1][1:], "mix": [y[1] for y in rows[:-1]]}
        shown = [
            0 if y == "masked" else float(y.strip("<>%"))
            for y in texts.get(stop, [z[-1] for z in rows])
        ]
        assert shown[: len(IDS)] == pytest.approx([100 * y for y in first], abs=0.6), model
        assert x["sink"] is not None or sum(shown) == pytest.approx(100, abs=2)
        assert x["dim"] in (2, 1, 4, 6)
        if stop == "mix":
            read = torch.tensor(first).float() @ torch.tensor(x["values"])
            assert read.tolist() == near(x["y"]), model
        assert "parts" not in x or [sum(y) for y in zip(*x["parts"], strict=True)] == near(
            x["products"]
        ), model


def test_convolutions_follow_from_shown_inputs_and_weights() -> None:
    models = 0
    for model, stops in kept().items():
        rows = [(x, torch.tensor(y)) for x, y in stops.get("conv", {"rows": []})["rows"]]
        for i, (label, before) in enumerate(rows):
            if not label.endswith(", the token before"):
                continue
            now, first, last, *rest = (y for _, y in rows[i + 1 : i + 6])
            bias = rest.pop(0) if rows[i + 4][0] == "bias" else 0
            assert (first * before + last * now + bias).tolist() == near(rest[0].tolist()), model
            models += 1
    assert models > 8


def test_products_and_sums_of_rows_hold() -> None:
    products = sums = 0
    for model, stops in kept().items():
        for name, x in stops.items():
            if p := x.get("product"):
                total = sum(a * b for a, b in zip(p["row"], p["x"], strict=True))
                assert total + p["bias"] == near(p["y"]), (model, name)
                products += 1
            rows = x.get("rows", [])
            for i, (label, numbers) in enumerate(rows):
                if label == "their sum" and i >= 2:
                    both = [
                        [a + b for a, b in zip(y, z, strict=False)]
                        for (_, y), (_, z) in combinations(rows[:i], 2)
                    ]
                    assert any(y == near(numbers) for y in both), (model, name)
                    sums += 1
    assert products > 30 and sums > 20


def test_every_stop_of_every_kind_has_numbers() -> None:
    without = {"apart", OTHER, "encoder"}
    for name in PRESETS:
        tour = tour_of(llamath.load(name), code=False)
        found = examples_of(tour)
        lacks = {x.name for x in tour.stops} - found.keys() - without
        assert not lacks, (name, lacks)
        for stop, x in found.items():
            assert x["says"] and x["rows"] and x["in"], (name, stop)
            assert all(len(y) <= len(x["columns"]) for y in x["rows"]), (name, stop)


def test_a_model_of_experts_tells_one_story() -> None:
    found = examples_of(tour_of(llamath.load("deepseek-v3"), code=False))
    assert {x["in"] for x in found.values()} == {"a tiny DeepSeek V3 of width 4"}
    numbers = {name: {y[0]: y[1:] for y in x["rows"]} for name, x in found.items()}
    assert [*numbers["embedding"].values()] == [numbers["norm"]["x"]]
    assert numbers["norm"]["times the weight"] == numbers["compress"]["x"]
    assert numbers["mix"]["all: y"][1:] == numbers["attention_out"]["y"][:2]
    shares = [x[-1] for x in found["scores"]["rows"]]
    assert shares == list(numbers["softmax"]["token 2"]) == [x[1] for x in found["mix"]["rows"]][:3]
    best = max(range(4), key=lambda i: float(found["next_token"]["rows"][i][1].strip("<>%")))
    assert found["logits"]["rows"][-1][1 + best] == "1.81"
    (x,) = {tuple(y["rows"][0]) for y in (found["experts"], found["shared"])}
    assert x[0] == "x"
    assert found["scores"]["columns"][1:3] == ["without position", "with RoPE"]


@pytest.mark.parametrize(
    ("preset", "stop", "copy"),
    [
        ("gemma-3-12b", "qk_norm", "Gemma 3"),  # which several families compute alike
        ("qwen3-30b-a3b", "router", "Qwen3 MoE"),
        ("gemma-2-27b", "scores", "Gemma 2"),  # capped, which the bundled model's are not
        ("codegen-350m", "gate_up", "GPT-J"),  # no copy of its own: the most steps alike
    ],
)
def test_numbers_are_of_the_own_family(preset: str, stop: str, copy: str) -> None:
    found = examples_of(tour_of(llamath.load(preset), code=False))
    assert found[stop]["in"] == f"a tiny {copy} of width 4"
