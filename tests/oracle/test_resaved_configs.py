"""Published configurations saved again by transformers: counted as before, and as the class that transformers builds of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import llamath
from support.each_case import each
from support.reference_data import truth

pytestmark = [
    pytest.mark.transformers,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*"),
]

ENTRIES = {f"{i}-{x['name']}": x for i, x in enumerate(truth("configs.jsonl"))}
REMAPPED = {
    "RefinedWebModel": "falcon",
    "internlm": "llama",
    "phi-msft": "phi",
    "phi4": "phi3",
    "gemma3": "gemma3_text",
}
"""Model types whose published configuration transformers reads as another type, if `remap` says so."""


def answer(config: dict[str, Any]) -> int | str:
    """Return the number of parameters without buffers, or the kind of the refusal."""
    try:
        parameters = llamath.load(config).parameters
    except llamath.LlamathError as error:
        return type(error).__name__
    return parameters.total - parameters.buffers


@each("name", ENTRIES)
@each("form", ["saved", "whole"])
def test_resaved_config_counts_as_published(form: str, name: str) -> None:
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    entry = ENTRIES[name]
    keys, published = dict(entry["config"]), answer(entry["config"])
    if (entry.get("v5") or {}).get("remap"):
        keys["model_type"] = REMAPPED.get(keys["model_type"], keys["model_type"])
    if keys["model_type"] not in CONFIG_MAPPING:
        pytest.skip("no configuration class in transformers")
    config = CONFIG_MAPPING[keys["model_type"]].from_dict(keys)
    again = answer(json.loads(config.to_json_string(use_diff=form == "saved")))
    assert again == published or again == entry["params"]
    if isinstance(again, int) and (entry.get("v5") or {}).get("model_class", "").endswith(
        ("ForCausalLM", "LMHeadModel")
    ):
        assert again == entry["params"]
