"""Configurations of multimodal models: defaults, changes, wrong values, and towers of unknown kinds."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import llamath
from llamath.analysis.graph.image_pass import Images, image_pass
from support.each_case import each
from support.reference_data import multimodal_configs

TEXT = {
    "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 70,
}  # fmt: skip
VISION = {
    "model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3,
    "image_size": 56, "patch_size": 14,
}  # fmt: skip
LLAVA: dict[str, Any] = {
    "model_type": "llava",
    "text_config": {**TEXT, "model_type": "llama"},
    "vision_config": VISION,
}


@each("config", multimodal_configs())
@pytest.mark.slow
def test_every_multimodal_model_survives_pickling(config: dict[str, Any]) -> None:
    model = llamath.load(config)
    assert model.is_multimodal and model.outer is not None
    assert pickle.loads(pickle.dumps(model)) == model
    assert not model.text.is_multimodal and model.text.text is model.text


def test_changes_reach_the_text_the_tower_and_the_projector() -> None:
    model = llamath.load(LLAVA)
    text, vision = (model.parameters.parts[x] for x in ("text", "vision"))
    for changes, changed in (
        ({"num_hidden_layers": 3}, {"text"}),
        ({"text_config.vocab_size": 80}, {"text"}),
        ({"vision_config.num_hidden_layers": 4}, {"vision"}),
        ({"multimodal_projector_bias": False}, {"vision"}),
        ({"hidden_size": 64}, {"text", "vision"}),
    ):
        for other in (llamath.load(LLAVA, changes=changes), llamath.load(model, changes=changes)):
            parts = other.parameters.parts
            assert {
                name for name, n in (("text", text), ("vision", vision)) if parts[name] != n
            } == changed, changes


@pytest.mark.parametrize("key", ["vision_config.depth_", "no_such_key"])
def test_unknown_changes_are_refused(key: str) -> None:
    with pytest.raises(llamath.ConfigError, match="unknown config key"):
        llamath.load(LLAVA, changes={key: 4})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"num_hidden_layers": -1}, "vision_config.num_hidden_layers should be a positive integer"),
    ({"hidden_size": "24"}, "vision_config.hidden_size should be an integer"),
    ({"num_attention_heads": 5}, "vision_config.num_attention_heads is 5, which does not divide"),
    ({"image_size": [56, 28]}, "vision_config.image_size should be an integer"),
    ({"hidden_act": "none"}, "vision_config.hidden_act names the unknown activation"),
    ({"model_type": ["x"]}, "vision_config.model_type should be a string"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_values_of_towers_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.ConfigError, match=message.replace(".", r"\.")):
        llamath.load({**LLAVA, "vision_config": {**VISION, **changes}})


@pytest.mark.parametrize("value", [[], "x", [1, "x"], [1.5]])
def test_wrong_feature_layers_are_named(value: Any) -> None:
    with pytest.raises(
        llamath.ConfigError,
        match="vision_feature_layer should name hidden states of a tower with 3 layers",
    ):
        llamath.load({**LLAVA, "vision_feature_layer": value})


@pytest.mark.parametrize(("value", "named"), [(99, 99), ([1, 99], 99), (-5, -5)])
def test_absent_feature_layers_are_counted_without_images(value: Any, named: int) -> None:
    model = llamath.load({**LLAVA, "vision_feature_layer": value})
    assert model.parameters.parts["vision"] > 0
    with pytest.raises(
        llamath.LlamathError,
        match=f"vision_feature_layer names hidden state {named} of a tower with 3 layers",
    ):
        image_pass(model.tree, Images(count=1, width=56, height=56))


def test_vision_config_should_be_an_object() -> None:
    with pytest.raises(llamath.ConfigError, match="vision_config should be an object"):
        llamath.load({**LLAVA, "vision_config": "clip"})


def test_unknown_tower_leaves_the_text_model_with_a_note() -> None:
    model = llamath.load({**LLAVA, "vision_config": {**VISION, "model_type": "tower_of_babel"}})
    assert (
        not model.is_multimodal
        and model.parameters.total == llamath.load(LLAVA).parameters.parts["text"]
    )
    assert any("not counted" in x and "tower_of_babel" in x for x in model.notes)


def test_absent_tower_is_that_of_the_class() -> None:
    model = llamath.load({"model_type": "llava", "text_config": {**TEXT, "model_type": "llama"}})
    assert model.parameters.parts["vision"] > 300_000_000
    assert "vision_config not in config; using the defaults of its class" in model.notes


def test_text_model_of_mlx_has_no_tower() -> None:
    quantization = {"group_size": 64, "bits": 4}
    model = llamath.load(
        {
            "model_type": "llava",
            "text_config": {**TEXT, "model_type": "llama"},
            "quantization": quantization,
        }
    )
    assert not model.is_multimodal and any("mlx-lm" in x for x in model.notes)


def test_towers_of_a_billion_layers_cost_no_time() -> None:
    model = llamath.load(
        {
            **LLAVA,
            "vision_config": {**VISION, "num_hidden_layers": 10**9},
            "vision_feature_layer": -2,
        }
    )
    assert model.parameters.total > 10**12
    assert llamath.flops(model, context=100, images="1x56").images is not None
    assert llamath.memory(model, context=100).weights > 10**12
    with pytest.raises(llamath.LlamathError, match="too many to list"):
        llamath.stored_names(model, names="hf")
