"""Multimodal models whose code is shipped with them: published totals, names and numbers of tensors; towers that transformers has, too."""

from __future__ import annotations

from typing import Any

import pytest

import llamath
from llamath.core.image_sizes import EnlargedImage
from llamath.core.multimodal import CountedTower

TOTAL_SIZES = {
    "deepseek-ocr": 6_672_212_480,
    "internvl2-8b": 16_150_730_752,
    "video-llava-7b": 14_732_558_336,
}
"""`metadata.total_size` in model.safetensors.index.json of a preset, in 16 bits."""
DEEPSEEK_OCR_TENSORS = 2710
PARAMETERS = {
    "internvl2.5-1b": 938_193_024,
    "internvl2.5-4b": 3_712_637_952,
    "minicpm-v-2.6": 8_099_175_152,
    "phi-3-vision": 4_146_621_440,
}
"""Parameters in the headers of published files, as huggingface_hub reads them; Phi-3 Vision's are those of Phi-3.5 Vision."""

DOTS_OCR = (4.99, 1.09)
"""Sizes of the files of rednote-hilab/dots.ocr, in GB."""
ENCODER_OF_DEEPSEEK_OCR = {
    "sam_model": 95_569_152,
    "vision_model": 303_177_728,
    "projector": 2_622_720,
}
"""Parameters of its parts, as a repository of them by themselves states."""


def names(model: llamath.Model) -> dict[str, tuple[int, ...]]:
    return {x.name: tuple(map(int, x.shape)) for x in model.family.hf.tensors(model.tree)}


@pytest.mark.parametrize("slug", TOTAL_SIZES)
def test_bytes_equal_the_published_index(slug: str) -> None:
    assert 2 * llamath.load(slug).parameters.total == TOTAL_SIZES[slug]


@pytest.mark.parametrize("slug", PARAMETERS)
def test_total_equals_that_of_published_headers(slug: str) -> None:
    assert llamath.load(slug).parameters.total == PARAMETERS[slug]


def test_other_versions_of_minicpm_v_are_refused() -> None:
    config = llamath.load("minicpm-v-2.6").outer
    assert config is not None
    data = {**config.data, **config.data["text_config"], "model_type": "minicpmv"}
    del data["text_config"]
    assert llamath.load(data).parameters.total == PARAMETERS["minicpm-v-2.6"]
    with pytest.raises(llamath.UnknownModel, match="its text model may be MiniCPM, Llama or Qwen2"):
        llamath.load({**data, "version": 4.0})
    with pytest.raises(
        llamath.ConfigError, match="drop_vision_last_layer is true; only false is supported"
    ):
        llamath.load({**data, "drop_vision_last_layer": True})


def test_deepseek_ocr_has_as_many_tensors_as_its_index() -> None:
    assert len(names(llamath.load("deepseek-ocr"))) == DEEPSEEK_OCR_TENSORS


def test_parts_of_deepseek_ocr_have_published_sizes() -> None:
    sums = dict.fromkeys(ENCODER_OF_DEEPSEEK_OCR, 0)
    model = llamath.load("deepseek-ocr")
    for leaf in model.weights:
        name = model.family.hf.stored_name(leaf.pattern).split(".")[1]
        if name in sums:
            sums[name] += int(leaf.weight.size)
    assert sums == ENCODER_OF_DEEPSEEK_OCR


def test_dots_ocr_has_the_size_of_its_files() -> None:
    assert round(2 * llamath.load("dots-ocr").parameters.total / 1e9, 2) == sum(DOTS_OCR)


def test_images_of_dots_ocr_are_refused() -> None:
    with pytest.raises(
        llamath.LlamathError, match="no other implementation has confirmed its pass"
    ):
        llamath.flops("dots-ocr", images="1x1024")


def test_phi_3_vision_is_phi_3_mini_with_clip() -> None:
    whole, text = names(llamath.load("phi-3-vision")), names(llamath.load("phi-3-mini"))
    assert {x: shape for x, shape in whole.items() if ".vision_embed_tokens." not in x} == text


def test_other_towers_of_deepseek_vl2_leave_its_text_model() -> None:
    config = llamath.load("deepseek-ocr").outer
    assert config is not None
    for name in ("DeepseekVLV2ForCausalLM", "DeepseekOCR2ForCausalLM"):
        model = llamath.load({**config.data, "architectures": [name]})
        assert any("text model only" in x for x in model.notes) and not model.is_multimodal


@pytest.mark.parametrize(
    ("slug", "changes", "message"),
    [
        (
            "phi-3-vision",
            {"img_processor": {"image_dim_out": 1024, "model_name": "siglip"}},
            "model_name should be openai/clip",
        ),
        (
            "phi-3-vision",
            {
                "img_processor": {
                    "image_dim_out": 768,
                    "model_name": "openai/clip-vit-large-patch14-336",
                }
            },
            "is 768, but",
        ),
        (
            "phi-3-vision",
            {"embd_layer": {"projection_cls": "linear"}},
            "projection_cls should be mlp",
        ),
        (
            "dots-ocr",
            {"vision_config": {"hidden_size": 1280}},
            "hidden_size is 1280, unlike the width 1536",
        ),
        (
            "dots-ocr",
            {"vision_config": {"temporal_patch_size": 2}},
            "temporal_patch_size is 2; only 1 is supported",
        ),
        (
            "deepseek-ocr",
            {"projector_config": {"input_dim": 1024, "n_embed": 1280}},
            "input_dim is 1024, and n_embed 1280",
        ),
        (
            "deepseek-ocr",
            {"projector_config": {"projector_type": "mlp_gelu"}},
            "projector_type should be linear",
        ),
    ],
)
def test_other_towers_and_projectors_are_refused(
    slug: str, changes: dict[str, Any], message: str
) -> None:
    config = llamath.load(slug).outer
    assert config is not None
    data = {key: x for key, x in config.data.items() if key != "text_config"} | dict(
        config.data.get("text_config", {})
    )
    data["model_type"] = config.data["model_type"]
    with pytest.raises(llamath.ConfigError, match=message):
        llamath.load({**data, **changes})


@pytest.mark.transformers
def test_clip_of_phi_3_vision_equals_transformers() -> None:
    import torch
    import transformers

    vision = llamath.load("phi-3-vision").tree.vision  # type: ignore[attr-defined]
    assert isinstance(vision, CountedTower) and isinstance(vision.image_sizes, EnlargedImage)
    config = transformers.CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
    )
    with torch.device("meta"):
        reference = transformers.CLIPVisionModel(config)
    assert sum(
        int(x.weight.size)
        for x in llamath.load("phi-3-vision").weights
        if x.pattern.startswith("vision.")
    ) == sum(x.numel() for x in reference.parameters())


@pytest.mark.transformers
def test_towers_of_deepseek_ocr_equal_those_of_transformers() -> None:
    """Unlimited-OCR has the same towers, without the patches of CLIP, which are stored and never read."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model("unlimited_ocr")
    with torch.device("meta"):
        reference = transformers.AutoModelForImageTextToText.from_config(config)
    vision = reference.model.vision_tower
    sam, clip = (
        sum(x.numel() for x in part.parameters())
        for part in (vision.sam_encoder, vision.vision_encoder)
    )
    assert sam == ENCODER_OF_DEEPSEEK_OCR["sam_model"]
    assert clip == ENCODER_OF_DEEPSEEK_OCR["vision_model"] - 1024 * 3 * 14 * 14
