"""The public architecture gallery: each of its models resolves offline by name and id, and whatever differs is explained."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import llamath
from architecture_gallery import (
    FIELDS,
    agrees_as_printed,
    differences,
    found_differences,
    gallery,
    layer_numbers,
    sheet,
)
from llamath import catalog
from llamath.catalog.refused_models import REFUSED_MODELS
from support.reference_data import conformance

OTHER_IDS = {"Qwen3 0.6B", "SmolLM3 3B"}
"""The gallery's names of base models that have, without "Base", the name of another one."""


def test_gallery_models_are_found_by_name_and_id() -> None:
    assert len(gallery()) == 102
    for entry in gallery():
        by_id = catalog.find_public_id(entry["hub_id"])
        refused = catalog.find_refused(entry["hub_id"])
        assert (by_id is None) != (refused is None), entry["hub_id"]
        for name in (entry["name"], entry["name"].upper().replace("-", " "), entry["hub_id"]):
            if refused is not None:
                with pytest.raises(llamath.LlamathError, match="is refused, not guessed: "):
                    catalog.find_preset(name)
                continue
            found = catalog.find_preset(name)
            assert by_id is not None and found.slug == by_id.slug, name
            if found.public_id != by_id.public_id and entry["name"] not in OTHER_IDS:
                assert by_id.public_id in by_id.same_release, name
            elif entry["name"] not in OTHER_IDS:
                assert found == by_id, name


@pytest.mark.slow
def test_refused_models_are_those_of_no_preset() -> None:
    names = [x.name for x in REFUSED_MODELS] + [x.public_id for x in REFUSED_MODELS]
    assert len(set(map(catalog.normalize_name, names))) == len(names)
    entries = {x["hub_id"]: x for x in gallery()}
    for x in REFUSED_MODELS:
        entry = entries[x.public_id]
        terms = differences()["licenses"][entry["license"]]
        assert (x.name, x.released, x.license) == (entry["name"], entry["released"], terms)
    listed = llamath.models()
    assert listed.refused == REFUSED_MODELS and len(listed) == len(catalog.slugs())
    assert llamath.models("motif").refused[0].name == "Motif 3 Beta"


@pytest.mark.slow
def test_each_difference_is_explained_once() -> None:
    explained = Counter((x, y["field"]) for y in differences()["differences"] for x in y["models"])
    assert max(explained.values()) == 1
    found = found_differences()
    assert {x: found[x] for x in found.keys() - explained.keys()} == {}
    assert explained.keys() - found.keys() == set()
    for y in differences()["differences"]:
        assert y["field"] in FIELDS and y["right"] in ("llamath", "gallery", "both", "unknown")


@pytest.mark.slow
def test_active_counts_differ_by_embedding_and_head() -> None:
    """Those that are said to be without the embedding, or without embedding and head, agree so."""
    checked = 0
    for group in differences()["differences"]:
        for public_id in group["models"] if "without" in group else ():
            facts = sheet(public_id)
            assert facts is not None and set(group["without"]) <= {"embedding", "head"}
            matrices = len(group["without"]) - ("head" in group["without"] and facts.tied_head)
            left_out = matrices * int(facts.model.text.tree.vocab) * facts.width
            theirs, _ = found_differences()[public_id, "active"]
            assert agrees_as_printed(int(str(theirs)), facts.active - left_out), public_id
            checked += 1
    assert checked >= 20


@pytest.mark.slow
def test_configs_that_are_no_file_have_the_published_total() -> None:
    """And the cache per token that the gallery has, or one that is explained."""
    counted = {
        x["model"]: x["printed"]["parameters"]
        for x in conformance("published_sizes")
        if x["kind"] == "parameters"
    }
    entries = {x["hub_id"]: x for x in gallery()}
    different = found_differences()
    for preset in catalog.presets():
        if preset.grade in ("file", "copy"):
            continue
        ids = [x for x in preset.ids if x in counted or x in entries]
        assert ids, preset.slug
        for public_id in ids:
            if public_id not in counted:
                printed: dict[str, Any] = entries[public_id]
                assert agrees_as_printed(printed["total_number"], preset.parameters) or (
                    (public_id, "total") in different
                ), public_id
            assert public_id not in entries or sheet(public_id) is not None


def test_layers_are_read_from_the_words_of_the_gallery() -> None:
    for text, expected in {
        "45 sliding-window + 15 global": [45, 15],
        "6 GQA + 23 Mamba-2 + 23 MoE; GQA + MoE MTP predictor": [6, 23, 23],
        "80 GQA + 1 MTP layer": [80],
        "22 shared GQA layers × 2 passes": [44],
        "61": [61],
    }.items():
        assert list(layer_numbers(text)) == expected
    assert agrees_as_printed(400_000_000_000, 398_635_286_016)
    assert not agrees_as_printed(671_000_000_000, 671_877_944_064)
