"""Every report takes every multimodal model, and those on weights have all of them."""

from __future__ import annotations

from typing import Any

import pytest

import llamath
from llamath.analysis.parallel_layout import Layout, pipeline_stages, weight_shards
from llamath.core.multimodal import is_computed
from llamath.web.page_data.page_data import build_page_data
from support.reference_data import multimodal_configs


def check_counted(model: llamath.Model) -> None:
    """A model with modules that are counted only refuses what needs a forward pass, by name."""
    assert llamath.names(model, names="hf").tensors
    assert llamath.diff(model, "llama-3-8b").to_json()
    assert llamath.explain(model.parameters.total, like=model).to_json()
    for ask in (
        lambda: llamath.flops(model, context=64),
        lambda: llamath.memory(model, context=64),
        lambda: llamath.memory(model, train=True, context=64),
    ):
        with pytest.raises(llamath.LlamathError, match="modules that are counted, not computed"):
            ask()


@pytest.mark.parametrize("config", multimodal_configs())
def test_every_report_takes_every_multimodal_model(config: dict[str, Any]) -> None:
    model = llamath.load(config)
    total = model.parameters.total
    if not is_computed(model.text.tree):
        check_counted(model)
        return
    assert llamath.memory(model, context=64, dtype="fp32").weights == 4 * total
    assert llamath.names(model, names="hf").tensors
    assert llamath.diff(model, "llama-3-8b").to_json()
    assert llamath.explain(total, like=model).to_json()
    assert llamath.fit(model, on="2xrtx-4090", context=64).to_json()
    assert llamath.flops(model, context=64).to_json()
    assert llamath.memory(model, train=True, context=64).to_json()
    assert build_page_data([model])
    text = llamath.flops(model.text, context=64)
    assert llamath.flops(model, context=64).forward.total == text.forward.total


@pytest.mark.parametrize("config", multimodal_configs())
@pytest.mark.parametrize("dtype", ["awq", "bnb-nf4", "q4_k_m"])
def test_towers_are_in_quantized_sizes(config: dict[str, Any], dtype: str) -> None:
    model = llamath.load(config)
    if dtype == "q4_k_m" and model.family.gguf is None:
        pytest.skip("no GGUF architecture")
    if not is_computed(model.text.tree):
        pytest.skip("the text model is counted only")
    whole, text = (llamath.memory(x, context=64, dtype=dtype).weights for x in (model, model.text))
    towers = model.parameters.total - model.parameters.parts.get("text", model.parameters.total)
    assert 2 * towers <= whole - text <= 4 * towers


@pytest.mark.parametrize("config", multimodal_configs())
def test_shards_hold_every_tower_once_or_on_every_rank(config: dict[str, Any]) -> None:
    model = llamath.load(config)
    for pp in (1, 2):
        stages = pipeline_stages(model.tree, Layout(pp=pp))
        sizes = [sum(x.elements for x in weight_shards(model.tree, stage, Layout(pp=pp))) for stage in stages]
        tied = sum(int(x.weight.size) for x in model.weights if x.weight.tied and x.path in ("head.weight", "head.extra")) if pp > 1 else 0
        assert sum(sizes) == model.parameters.total + tied
        towers = {x.pattern.partition(".")[0] for x in weight_shards(model.tree, stages[-1], Layout(pp=pp))} & {"vision", "projector"}
        assert not towers or pp == 1
