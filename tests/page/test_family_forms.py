"""The forms of all families: every preset is counted by the form of a model of its structure."""

from __future__ import annotations

import json

import pytest

import llamath
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.catalog import slugs
from llamath.core.expr import Expr
from llamath.core.tree import CountedOnly, fold
from llamath.model import FamilyModel
from llamath.utils.errors import LlamathError
from llamath.web.forms.family_form import find_form
from llamath.web.forms.page_forms import family_forms, read_dimensions, unpack
from llamath.web.forms.traced_numbers import Trace
from llamath.web.server.page_html import compressed_json
from support.page_expressions import evaluate, total_of

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
            assert evaluate(one["active"]["form"], at) == model.parameters.active, (slug, x["name"])
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


def test_caches_of_presets_are_those_of_a_form() -> None:
    """Where the keys that decide the cache are the form's, at two lengths; else the form says nothing."""
    found, silent = 0, set[str]()
    for slug in slugs():
        model = llamath.load(slug)
        if not isinstance(model, FamilyModel) or model.tree.is_multimodal:
            continue
        config = model.config.data
        known = ((x["design"], read_dimensions(config, x["design"])) for x in FORMS)
        design, at = next((x, y) for x, y in known if y is not None)
        form, keys = design["cache"]["form"], design["cache"]["keys"]
        own = {key: json.dumps(config[key]) if key in config else "" for key, _ in keys}
        if form is None or own != dict(keys):
            silent.add(slug)
            continue
        for tokens in (1000, 20_000):
            try:
                expected = kv_cache_size(model.tree, tokens).bytes
            except CountedOnly:
                silent.add(slug)
                break
            assert evaluate(form, {**at, "T": tokens}) == expected, (slug, design["type"], tokens)
        found += 1
    assert found > 350, (found, silent)


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
