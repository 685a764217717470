"""What publishers quantized: a dtype of a preset is their recipe, where it is known."""

from __future__ import annotations

from typing import Any

import pytest

import llamath
from llamath import catalog
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from support.reference_data import conformance

RECIPES = [(x.slug, dtype) for x in catalog.presets() for dtype in x.quantized]


def sizes(source: str, dtype: str, **changes: Any) -> MemoryCalculator:
    model = llamath.load(source, changes=changes) if changes else llamath.load(source)
    assert isinstance(model, llamath.FamilyModel)
    return MemoryCalculator(model, MemoryRequest(dtype=dtype))


@pytest.mark.parametrize(("slug", "dtype"), RECIPES)
def test_a_recipe_has_a_source_and_is_applied(slug: str, dtype: str) -> None:
    entry = catalog.read_preset(slug).quantized[dtype]
    assert set(entry) <= {"id", "ids", "source", "torch_dtype", "quantization_config"}
    assert entry["source"] and set(entry.get("ids", {})) <= set(catalog.read_preset(slug).ids)
    found = sizes(slug, dtype)
    assert found.packer.name == dtype and found.packer.recipe is not None
    assert any(f"{dtype} is the recipe of {entry['id']}" in x for x in found.notes)
    assert found.storage is not None and found.storage.matrices
    assert 4 < float(found.storage.bits) < 10


def test_awq_of_qwen_has_the_published_elements() -> None:
    name = "Qwen/Qwen2.5-7B-Instruct-AWQ"
    (row,) = (x for x in conformance("published_sizes") if x.get("name") == name)
    printed = row["printed"]
    found = sizes("Qwen/Qwen2.5-7B-Instruct", "awq")
    assert found.storage is not None
    assert found.storage.bytes == 4 * printed["I32"] + 2 * printed["F16"]


def test_attention_of_llama_405b_stays_in_bfloat16() -> None:
    # The Llama 3 Herd of Models, section 6.2
    published, default = (
        sizes("llama-3.1-405b", "fp8"),
        sizes("llama-3.1-405b", "fp8", vocab_size=128255),
    )
    assert published.storage is not None and default.storage is not None
    mlp, attention = 3 * 16384 * 53248, 2 * 16384 * (16384 + 1024)
    kept = sum(
        x.copies * int(x.out) * int(x.into)
        for x in published.storage.matrices
        if x.choice.format is None
    )
    assert kept == 2 * mlp + 126 * attention + 2 * 128256 * 16384
    assert default.packer.recipe is None
    assert any("no recipe of the publisher is known" in x for x in default.notes)


def test_other_ids_have_their_own_repositories() -> None:
    ids = {
        x: [y for y in sizes(x, "fp8").notes if "recipe of" in y][:1]
        for x in ("Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.6-35B-A3B", "ornith-ai/Ornith-1.5-35B-A3B")
    }
    first, second, third = ids.values()
    assert "Qwen3.5-35B-A3B-FP8" in first[0] and "Qwen3.6-35B-A3B-FP8" in second[0]
    assert "no recipe of the publisher" in third[0]


def test_an_engine_loads_the_published_repository() -> None:
    report = llamath.fit_engine("Qwen/Qwen3.6-35B-A3B", on="h100", engine="vllm", dtype="fp8")
    assert report.command.startswith("vllm serve Qwen/Qwen3.6-35B-A3B-FP8 ")
    assert not any("stands for" in x for x in report.notes)
