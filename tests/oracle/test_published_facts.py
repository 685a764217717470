"""Published configurations and index files of `tests/truth`: total, tensor names and shapes, all exact."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

import llamath
from llamath.checkpoint.naming.scheme import Scheme, fused_scheme
from llamath.families.model_class import headless_scheme
from llamath.families.registry import find_family
from support.each_case import each
from support.reference_data import truth

ENTRIES = {f"{i}-{x['name']}": x for i, x in enumerate(truth("configs.jsonl"))}
ORACLE = {name: x for name, x in ENTRIES.items() if x["params"] is not None}
TEXT = ("language_model", "lm_head", "text_model")

REFUSED = {
    "t5gemma": "an encoder-decoder model",
}
"""Unsupported model types among the published configurations, with the reason."""


def model_of(entry: dict[str, Any]) -> llamath.Model:
    config = dict(entry["config"])
    if labels := TRIMMED.get(config.get("architectures", [""])[0]):
        config["num_labels"] = labels
    return llamath.load(config)


TRIMMED = {"GPTNeoXForSequenceClassification": 3}
"""Number of labels of classifiers whose published configurations lack it."""


def is_text(part: str) -> bool:
    """Whether a component of a published total is part of the text model."""
    return any(x in part for x in TEXT)


def multimodal(entry: dict[str, Any]) -> bool:
    return "text_config" in entry["config"]


def oracles(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of each version of transformers, without the one that contradicts the other and the published file (phimoe's head size)."""
    return [
        x
        for version in ("v4", "v5")
        if (x := entry.get(version)) and x["params"] == entry["params"]
    ]


def hashed(scheme: Scheme, model: llamath.Model) -> str:
    """The oracle's hash of names and shapes: parameters without buffers."""
    tensors = (x for x in scheme.tensors(model.tree) if not x.parts[0].weight.buffer)
    lines = sorted(f"{x.name}\t{'x'.join(map(str, x.shape))}\n" for x in tensors)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@each("name", ORACLE)
def test_total_equals_published(name: str) -> None:
    entry = ENTRIES[name]
    if (model_type := entry["config"]["model_type"]) in REFUSED:
        with pytest.raises(llamath.UnknownModel, match=model_type):
            model_of(entry)
        return
    model = model_of(entry)
    p, expected = model.parameters, entry["params"]
    if model.is_multimodal:
        text = model.text.parameters.total - model.text.parameters.buffers
        assert text == sum(
            n for part, n in entry.get("components", {"lm_head": text}).items() if is_text(part)
        )
    elif multimodal(entry) and "components" not in entry:
        assert 0 < p.total < expected
        return
    elif multimodal(entry):
        expected = sum(n for part, n in entry["components"].items() if is_text(part))
    assert p.total - p.buffers == expected
    active = next((x["active_params"] for x in oracles(entry)), None)
    if active is not None and (model.is_multimodal or not multimodal(entry)):
        towers = p.total - p.parts.get("text", p.total)  # counted there among the active parameters
        assert p.active + towers - p.buffers == active


@pytest.mark.parametrize("name", [name for name, x in ORACLE.items() if multimodal(x)])
def test_names_and_shapes_of_whole_models_equal_published(name: str) -> None:
    entry = ENTRIES[name]
    model = model_of(entry)
    if not model.is_multimodal:
        pytest.skip("only its text model is known")
    forms = (
        x
        for y in (model.family.hf, *model.family.hf_forms)
        for x in (y, fused_scheme(y))
        if x is not None
    )
    assert {hashed(x, model) for x in forms} & {x["tensors_sha256"] for x in oracles(entry)}


@each("name", [name for name, x in ORACLE.items() if x.get("v4") and not multimodal(x)])
def test_names_and_shapes_equal_published(name: str) -> None:
    entry = ENTRIES[name]
    if entry["config"]["model_type"] in REFUSED:
        pytest.skip("refused by name")
    model = model_of(entry)
    scheme = (
        find_family("phi").hf if entry["config"]["model_type"] == "phi-msft" else model.family.hf
    )  # counted there under the class of phi
    if entry["v4"] not in oracles(entry):
        scheme = (
            fused_scheme(scheme) or scheme
        )  # version 5 alone is left, and it holds the experts of a layer in two tensors
    assert hashed(scheme, model) in {x["tensors_sha256"] for x in oracles(entry)}


@pytest.mark.parametrize("name", [name for name, x in ENTRIES.items() if x["params"] is None])
def test_configuration_without_oracle_is_an_error(name: str) -> None:
    try:
        model = model_of(ENTRIES[name])
    except llamath.LlamathError as error:
        assert str(error) and error.hint
    else:
        assert model.family.name in {"internlm2", "minicpm", "nemotron_nas", "orion", "qwen"}, (
            "no oracle: the right answer is a refusal"
        )


INDEXES = {x["name"]: x for x in truth("indexes.jsonl")}
BY_NAME = {x["name"]: x for x in ENTRIES.values()}
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def whole(index: dict[str, Any]) -> bool:
    """Whether an index lists exactly the unquantized text model, with at most tied copies in addition."""
    entry = BY_NAME.get(index["config"])
    plain = (
        entry is not None
        and entry["params"] is not None
        and entry["config"]["model_type"] not in REFUSED
        and not multimodal(entry)
        and not index["quantized"]
    )
    return (
        plain
        and index["names_only_in_index"]
        == len(set(index["tied_stored"]) & set(index["only_in_index_sample"]))
        and "qwen3_5" not in str(entry)
    )


@pytest.mark.parametrize("name", [name for name, x in INDEXES.items() if whole(x)])
def test_names_equal_published_index(name: str) -> None:
    index = INDEXES[name]
    model = model_of(BY_NAME[index["config"]])
    candidates = [model.family.hf, headless_scheme(model.family.hf)]
    if model.family.name == "internlm":
        pytest.skip("its files have internlm2's names")
    hashes = set()
    for scheme in candidates:
        names = sorted({x.name for x in scheme.tensors(model.tree)} | set(index["tied_stored"]))
        hashes.add(hashlib.sha256("\n".join(names).encode()).hexdigest())
    assert index["names_sha256"] in hashes
    width = BYTES.get(index["torch_dtype"] or "")
    if width and str(index["match"]).startswith("exact"):
        stored = (
            model.parameters.tied_counted_twice if index["tied_stored"] else model.parameters.total
        )
        assert stored * width == index["total_size"]
