"""Differences, fact sheets and tours of a configuration."""

from __future__ import annotations

from functools import cache

import llamath
from llamath.analysis.learn.tour.tour import tour_of
from llamath.analysis.understand.fact_sheet import fact_rows, fact_sheet
from support.checked_diff import checked_diff
from support.contract import Contract, check


@cache
def other_model() -> llamath.Model:
    return llamath.load("llama-3.2-1b")


@check("text")
def causes_against_llama_sum_and_reverse(case: Contract) -> None:
    if not case.is_new:
        return
    there, back = checked_diff(case.model, other_model()), checked_diff(other_model(), case.model)
    reversed_causes = [
        (x.kind, -x.delta, [(y.path, -y.delta) for y in x.parts]) for x in reversed(there.causes)
    ]
    assert reversed_causes == [
        (x.kind, x.delta, [(y.path, y.delta) for y in x.parts]) for x in back.causes
    ]
    same = checked_diff(case.model, llamath.load(dict(case.config)))
    assert not same.causes and not same.weights and not same.config


@check("text")
def fact_sheet_describes_the_model(case: Contract) -> None:
    if not case.is_new or not case.is_computed:
        return
    facts = fact_sheet(case.model)
    assert facts.description.startswith("A ")
    assert sum(x.layers for x in facts.mixer_pattern.runs) <= facts.layers
    assert all(name and value for name, value in fact_rows(facts))
    assert facts.to_json()["layers"] == facts.layers


@check("text")
def stops_of_the_tour_add_every_weight_once(case: Contract) -> None:
    if not case.is_thorough or not case.is_computed:
        return
    tour = tour_of(case.model)
    assert sum(x.adds.value for x in tour.stops) == sum(x.parameters for x in case.model.weights)
    paths = [x for weights in tour.weights.values() for x in weights]
    assert paths and len(paths) == len(set(paths))
    assert all("None" not in x.what + x.why + x.formula and "{" not in x.what for x in tour.stops)
