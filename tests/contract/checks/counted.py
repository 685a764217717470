"""Counts, names and reports of a configuration, which need no torch."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from math import prod

from llamath.analysis.understand.count.count_report import CountReport
from llamath.checkpoint.naming.scheme import UnnamedWeight
from llamath.core.tree import fold, walk
from support.contract import Contract, check


def evaluated(text: str, letters: dict[str, int] | None = None) -> int:
    return int(eval(text.replace("·", "*").replace("−", "-"), {}, letters or {}))


@check("text", "multimodal", "unproven")
def parts_sum_to_the_total(case: Contract) -> None:
    report, p = case.model.count, case.model.parameters
    assert sum(report.groups.values()) == p.total
    assert sum(x.each * int(x.times) for x in report.sections) == p.total
    assert sum(int(x.weight.parameters) for x in walk(case.tree)) == p.total
    formula = report.formula
    assert (
        evaluated(formula.numbers)
        == evaluated(formula.symbols, dict(formula.letters))
        == formula.value
        == p.total
    )
    assert sum(report.share(n) for n in report.groups.values()) == 1
    assert (
        p.without_embeddings == p.total - report.groups["embedding"]
        and p.without_head == p.total - report.groups["head"]
    )
    assert p.blocks <= p.active <= p.total or p.active <= p.total <= p.tied_counted_twice


@check("text", "multimodal", "unproven")
def folded_and_streamed_weights_agree(case: Contract) -> None:
    streamed: Counter[tuple[str, str]] = Counter()
    for leaf in walk(case.tree):
        streamed[leaf.pattern, leaf.group] += leaf.parameters
    folded: Counter[tuple[str, str]] = Counter()
    for x in fold(case.tree):
        folded[x.pattern, x.group] += int(x.weight.parameters) * int(x.copies)
    assert streamed == folded


@check("text", "multimodal", "unproven")
def paths_and_stored_names_are_a_bijection(case: Contract) -> None:
    model = case.model
    paths = [x.path for x in model.weights]
    assert len(paths) == len(set(paths))
    for scheme in model.family.schemes.values():
        try:
            tensors = list(scheme.tensors(model.tree))
        except UnnamedWeight:
            continue
        names = [x.name for x in tensors]
        assert len(names) == len(set(names)) and not any("{" in name for name in names)
        assert sum(len(x.parts) for x in tensors) == sum(not x.weight.tied for x in model.weights)
        for x in tensors:
            assert prod(map(int, x.shape)) == sum(int(part.weight.size) for part in x.parts), x.name


@check("text", "multimodal", "unproven")
def one_letter_has_one_value(case: Contract) -> None:
    letters: dict[str, int] = {}
    for x in fold(case.tree):
        for symbol, value in ((s, v) for n in x.weight.shape for s, v in n.atoms.items()):
            assert letters.setdefault(symbol, value) == value, f"{symbol} in {x.pattern}"


@check("text", "unproven")
def json_lists_every_weight(case: Contract) -> None:
    output = json.loads(json.dumps(CountReport(model=case.model).to_json()))
    assert [x["path"] for x in output["weights"]] == [x.path for x in case.model.weights]
    assert (
        sum(x["parameters"] for x in output["weights"])
        == output["parameters"]["total"]
        == sum(output["groups"].values())
        == evaluated(output["formula_numbers"])
        == evaluated(output["formula"], output["letters"])
    )
    assert not set(output["formula_numbers"]) & set(output["letters"])
    assert all(
        "{" not in name
        for x in output["weights"]
        for name in (x["path"], *x["names"].values())
        if name
    )


@check("text")
def model_survives_pickling(case: Contract) -> None:
    assert pickle.loads(pickle.dumps(case.model)) == case.model
