"""The forms of all families: every preset is counted by the form of a model of its structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.size.fit.serving_layouts import tp_degrees
from llamath.analysis.size.memory.gpu_shards import ShardedModel
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.catalog import read_preset, slugs
from llamath.core.expr import Expr
from llamath.core.tree import CountedOnly, fold
from llamath.model import FamilyModel
from llamath.questions.layout import Layout
from llamath.utils.errors import LlamathError
from llamath.web.forms.family_form import find_form
from llamath.web.forms.page_forms import family_forms, read_dimensions, unpack
from llamath.web.forms.traced_numbers import Trace
from llamath.web.server.page_html import compressed_json
from support.browser_page import NARROW, Tab, browser
from support.page_expressions import active_of, evaluate, total_of
from support.page_models import page_of

__all__ = ["browser"]
FORMS = list(unpack(family_forms()))


def test_every_preset_is_counted_by_a_form() -> None:
    """By that of another preset if that has the same structure, and no condition refuses it."""
    counted, by_others, uncounted = 0, 0, set[str]()
    for slug in slugs():
        model = llamath.load(slug)
        if not isinstance(model, FamilyModel) or model.tree.is_multimodal:
            continue
        config = model.config.data
        for x in FORMS:
            design = x["design"]
            if (at := read_dimensions(config, design)) is None:
                continue
            tied = None if design["tied"] is None else any(model.tied_names)
            one = next(y for y in design["totals"] if y["tied"] == tied)
            assert total_of(one, at) == model.parameters.total, (slug, x["name"])
            assert active_of(one, at) == model.parameters.active, (slug, x["name"])
            broken = [
                y["says"]
                for y in design["rules"]
                if evaluate(y["form"], at) > evaluate(y["most"]["form"], at)
            ]
            assert not broken, (slug, x["name"], broken)
            counted += 1
            by_others += x["name"] != model.name
            break
        else:
            uncounted.add(slug)
    assert counted > 420 and by_others > 250 and not uncounted, (counted, by_others, uncounted)


WINDOW = {"sliding_window": 1000}
MUTATED = (
    {},
    WINDOW,
    {"sliding_window": None},
    {"num_hidden_layers": 7},
    {"max_position_embeddings": 9999},
)
"""Other values of keys that a model has."""
IN_PAGE = """(texts) => Promise.all(texts.map(async (text) => {
  const { data, readConfig, designedModel, decodeSizes, keptKeys, sizedModel, sizedIn } = llamath;
  const found = await readConfig(new File([text], "config.json"), data).catch(() => null);
  if (!found) return null;
  const { design } = designedModel(data, found.like);
  const model = sizedModel("x", design, decodeSizes(design, found.sizes), keptKeys.entries);
  if (!model) return { like: found.like };
  const { sizes } = model;
  const totals = sizes.layouts.map((layout) => [Number(layout.tp), [[1000, 1], [20000, 3]].map(([T, B]) => {
    const at = { context: BigInt(T), batch: BigInt(B), dtype: "", kv: "" };
    const { plan } = sizedIn(sizes, at, { layout, replicas: 1 }, layout.tp);
    return Number(llamath.memoryPerGpu({ plan }).mostLoaded.values.total);
  })]);
  return { like: found.like, own: Number(sizes.own), stated: sizes.stated, totals };
}))"""


def test_page_sizes_configs_of_all_families(
    browser: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Those of all presets, of each type the first and the last, and with `--all` every one, also with other windows, layers and contexts."""
    every, by_type = request.config.getoption("--all"), dict[str, list[str]]()
    for slug in slugs():
        by_type.setdefault(read_preset(slug).config["model_type"], []).append(slug)
    chosen = {y for x in by_type.values() for y in (x if every else (x[0], x[-1]))}
    models = list[FamilyModel]()
    for slug in sorted(chosen):
        own = llamath.load(slug)
        if not isinstance(own, FamilyModel) or own.tree.is_multimodal:
            continue
        for changes in MUTATED:
            if not changes.keys() <= own.config.data.keys():
                continue
            try:
                other = llamath.load({**own.config.data, **changes})
            except LlamathError:
                continue
            assert isinstance(other, FamilyModel)
            models.append(other)
    with Tab(browser, tmp_path, page_of("gpt2"), width=NARROW) as tab:
        found = tab.evaluate(IN_PAGE, [json.dumps(dict(x.config.data)) for x in models])
    sized, split, silent = 0, 0, set[str]()
    for model, answer in zip(models, found, strict=True):
        config = model.config.data
        if answer is None or "totals" not in answer:
            silent.add(str(config["model_type"]))
            continue
        calculator = MemoryCalculator(model, MemoryRequest(dtype="bf16", kv_dtype="bf16"))
        for tp, totals in answer["totals"]:
            sharded = ShardedModel(calculator, Layout(tp=tp))
            try:
                expected = [sharded.max_memory(*x) for x in ((1000, 1), (20_000, 3))]
            except CountedOnly:  # a head or a norm of its own, in a form of others
                silent.add(str(config["model_type"]))
                break
            assert totals == expected, (dict(config), answer["like"], tp)
        degrees = [x for x, _ in answer["totals"]]
        known = [x for x in tp_degrees(model.tree) if x in (1, 2, 4, 8, 16)]
        assert degrees in (known, [1]), (config, degrees, known)
        assert not answer["stated"] or answer["own"] == model.tree.context, config
        sized += 1
        split += degrees == known
    assert sized > 0.7 * len(models) and split > 0.55 * len(models), (
        len(models),
        sized,
        split,
        silent,
    )


def test_forms_are_small_in_a_page() -> None:
    assert len(compressed_json(family_forms())) <= 90_000


def test_traced_numbers_keep_derivations_and_decisions() -> None:
    trace = Trace()
    d, H = trace.variable("d", 4096), trace.variable("H", 32)
    h = Expr("h", d // H)
    assert (h.symbol, int(h), (3 * h * H + d % 100).symbol) == (
        "h",
        128,
        "3·h·H + d − 100·⌊d / 100⌋",
    )
    assert h.evaluate(d=96, H=2) == 48 and (d - (-d // 7)).evaluate(d=50) == 58
    assert not trace.guards
    assert not d % H and d > H and H != 0 and d == d // 1
    held = [(x.operation, x.left.symbol, x.right.symbol, x.held) for x in trace.guards.values()]
    assert held == [("|", "d", "H", True), ("<", "H", "d", True), ("==", "H", "0", False)]
    assert not next(iter(trace.guards.values())).holds(d=4097, H=32)


def test_plain_loads_are_not_traced() -> None:
    tree = llamath.load("llama-3-8b").tree
    assert {type(n) for x in fold(tree) for n in (*x.weight.shape, x.weight.size)} == {Expr}


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v3", "falcon-40b", "qwen3-next-80b-a3b"])
def test_library_refuses_what_violates_a_condition(slug: str) -> None:
    model = llamath.load(slug)
    assert isinstance(model, FamilyModel)
    form = find_form(model)
    assert form is not None
    keys = {x.letter: x.key for x in form.reads}
    base = {x.letter: x.value for x in form.reads}
    violated = 0
    for x in form.conditions:
        for letter in x.left.variables | x.right.variables:
            for n in (1, base[letter] + 1, 2 * base[letter] + 1, 131_072):
                at = {**base, letter: n}
                if not x.is_violated(at):
                    continue
                violated += 1
                data = {**form.data, **{keys[y]: m for y, m in at.items()}}
                try:
                    other = llamath.load(data)
                except LlamathError:
                    continue
                assert x.bounds_forms, (x.text, at, other)
    assert violated > 3
