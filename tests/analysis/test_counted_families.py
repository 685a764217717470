"""Text models that are counted only: reports on their weights are as for every other model, and those on their passes refuse by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.catalog import slugs
from llamath.core.multimodal import is_computed
from llamath.core.tree import CountedOnly
from support.reference_data import (
    COUNTED,
    computed_slugs,
    multimodal_configs,
    tiny_configs,
    unproven_configs,
)
from support.typed_commands import Typed

FAMILIES = {
    "apertus": "Apertus", "baichuan": "Baichuan 2", "deepseek_v41_text": "DeepSeek-V4.1", "diffllama": "DiffLlama", "doge": "Doge", "gemma3n_text": "Gemma 3n", "grok1": "Grok 2",
    "jetmoe": "JetMoE", "mistral_large4": "Mistral Large 4", "mistral_large4_text": "Mistral Large 4", "muse_spark": "Muse Spark",
    "muse_spark_text": "Muse Spark", "phimoe": "Phi-3.5-MoE", "recurrent_gemma": "RecurrentGemma",
    "xlstm": "xLSTM", "zaya": "ZAYA", "longcat_flash_ngram": "LongCat",
}  # fmt: skip
"""How a refusal names the family of a model type."""
OTHERS = ("idefics", "kosmos-2.5")
"""Multimodal models whose text alone is not computed for other reasons."""
PRESETS = {
    "apertus-8b": "Apertus's xIELU",
    "baichuan2-7b": "Baichuan 2's normalized head",
    "grok-2": "Grok 2's scaling of capped scores by position",
    "phi-mini-moe": "Phi-3.5-MoE's SparseMixer",
    "xlstm-7b": "xLSTM's matrix memory",
}


def refusals(model: Any) -> set[str]:
    """What the reports that need a forward pass of a model say."""
    found = set()
    for ask in (
        lambda: llamath.flops(model, context=32),
        lambda: llamath.memory(model, context=32),
        lambda: llamath.training_memory(model, context=32),
        lambda: llamath.fit(model, on="rtx-4090", context=32),
    ):
        try:
            ask()
        except CountedOnly as error:
            found.add(f"{error}; {error.hint}")
        else:
            found.add("computed")
    return found


@pytest.mark.slow
def test_only_families_that_are_named_are_counted_only() -> None:
    for x in (*tiny_configs(), *unproven_configs(), *multimodal_configs()):
        config = x.values[0]
        model = llamath.load(config)
        if config["model_type"] in OTHERS:
            continue
        counted = str(x.id).startswith(COUNTED) or config["model_type"] in (
            "gemma3n",
            "deepseek_v41",
            "mistral_large4",
            "muse_spark",
        )
        assert is_computed(model.text.tree) is not counted, x.id
    assert {x for x in slugs() if not is_computed(llamath.load(x).text.tree)} == {*slugs()} - {
        *computed_slugs()
    }


@pytest.mark.slow
def test_passes_are_refused_by_name_and_weights_are_not() -> None:
    seen = set()
    for x in (*tiny_configs(), *unproven_configs()):
        if not str(x.id).startswith(COUNTED):
            continue
        model, name = llamath.load(x.values[0]), FAMILIES[x.values[0]["model_type"]]
        (said,) = refusals(model)
        assert (
            said.startswith(f"llamath does not compute {name}'s ")
            and "the weights of this model are counted only" in said
            and "`convert`" in said
        ), x.id
        assert (
            llamath.stored_names(model, names="hf").tensors
            and llamath.count(model).to_json()
            and llamath.quants(model).to_json()
        ), x.id
        facts = llamath.facts(model)
        assert (
            facts.kv_per_token is None
            and facts.total == model.parameters.total
            and any(name in note for note in facts.notes)
        ), x.id
        seen.add(name)
    assert seen == set(FAMILIES.values())


def test_what_depends_on_the_number_of_a_layer_stays() -> None:
    """An edit of the layers compares trees: those of DiffLlama and Gemma 3n cannot be numbered anew."""
    configs = {str(x.id): x.values[0] for x in tiny_configs()}
    diffllama, gemma3n = (
        llamath.load(configs[x]).tree.layers
        for x in ("diffllama-plain", "gemma3n-widths, sparse, two streams, biased, untied")
    )
    assert (
        len(diffllama.distinct()) == len(diffllama) and len({x.mlp.__class__ for x in gemma3n}) == 2
    )  # type: ignore[attr-defined]


@pytest.mark.slow
def test_commands_end_with_2_and_say_why(typed: Typed, tmp_path: Path) -> None:
    for slug, what in PRESETS.items():
        for words in (
            ("flops", slug),
            ("memory", slug),
            ("fit", slug, "--on", "rtx-4090"),
            ("trace", slug),
        ):
            answer = typed(*words)
            assert answer.status == 2 and not answer.out, words
            assert f"llamath does not compute {what}: the weights" in " ".join(
                answer.err.split()
            ), words
        for words in (
            ("count", slug),
            ("names", slug),
            ("facts", slug),
            ("quants", slug),
            ("config", slug),
        ):
            assert typed(*words).status == 0, words
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(next(x.values[0] for x in tiny_configs() if x.id == "diffllama-plain"))
    )
    assert typed("diff", path, "apertus-8b").status == 0
