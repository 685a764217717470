"""Every published configuration of `../shared/truth`: total, tensor names and shapes, exactly; and the published index files."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

import llamath
from conftest import truth
from llamath.families import find
from llamath.names.scheme import Scheme

ENTRIES = {f"{i}-{x['name']}": x for i, x in enumerate(truth("configs.jsonl"))}
ORACLE = {name: x for name, x in ENTRIES.items() if x["params"] is not None}
TEXT = ("language_model", "lm_head", "text_model")

REFUSED = {
    "deepseek_v4": "its attention compresses and indexes its own cache; not one of the blocks here",
    "t5gemma": "an encoder beside the decoder",
}
"""Model types with an oracle that this package refuses, and why."""


def model_of(entry: dict[str, Any]) -> llamath.Model:
    config = dict(entry["config"])
    if labels := TRIMMED.get(config.get("architectures", [""])[0]):
        config["num_labels"] = labels
    return llamath.load(config)


TRIMMED = {"GPTNeoXForSequenceClassification": 3}
"""Classifiers whose number of labels the published facts leave out of the configuration."""


def multimodal(entry: dict[str, Any]) -> bool:
    return "text_config" in entry["config"]


def hashed(scheme: Scheme, model: llamath.Model) -> str:
    """The oracle's hash: its parameters, without the buffers that files have besides."""
    tensors = (x for x in scheme.tensors(model.tree) if not x.parts[0].weight.buffer)
    lines = sorted(f"{x.name}\t{'x'.join(map(str, x.shape))}\n" for x in tensors)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("name", ORACLE)
def test_total(name: str) -> None:
    entry = ENTRIES[name]
    if (model_type := entry["config"]["model_type"]) in REFUSED:
        with pytest.raises(llamath.UnknownModel, match=model_type):
            model_of(entry)
        return
    p = model_of(entry).parameters
    expected = entry["params"]
    if multimodal(entry) and "components" not in entry:
        assert 0 < p.total < expected
        return
    if multimodal(entry):
        expected = sum(n for part, n in entry["components"].items() if any(x in part for x in TEXT))
    assert p.total - p.buffers == expected
    active = (entry.get("v4") or entry["v5"]).get("active_params")
    if active is not None and not multimodal(entry):
        assert p.active - p.buffers == active


@pytest.mark.parametrize("name", [name for name, x in ORACLE.items() if x.get("v4") and not multimodal(x)])
def test_names_and_shapes(name: str) -> None:
    entry = ENTRIES[name]
    if entry["config"]["model_type"] in REFUSED:
        pytest.skip("refused by name")
    model = model_of(entry)
    scheme = find("phi").hf if entry["config"]["model_type"] == "phi-msft" else model.family.hf  # counted there under the class of phi
    found = hashed(scheme, model)
    assert found in {entry["v4"]["tensors_sha256"], (entry["v5"] or {}).get("tensors_sha256")}


@pytest.mark.parametrize("name", [name for name, x in ENTRIES.items() if x["params"] is None])
def test_what_nobody_can_prove_is_refused_or_proven_elsewhere(name: str) -> None:
    try:
        model = model_of(ENTRIES[name])
    except llamath.LlamathError as error:
        assert str(error) and error.hint
    else:
        assert model.family.name in {"internlm2", "minicpm", "orion", "qwen"}, "no oracle: the right answer is a refusal"
