"""DeepSeek-OCR and Unlimited OCR: the tiles of an image beside the whole, compared with the class of transformers for the latter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from llamath.analysis.image_pass import Images, image_pass
from llamath.core.image_sizes import CroppedImage, WholeAndCrops
from llamath.core.multimodal import Multimodal
from llamath.core.towers import DeepTower
from llamath.run.kv_cache import Cache
from llamath.run.torch_machine import TorchMachine
from llamath.run.weights.open_model import open_model
from support.image_processors import IMAGES
from support.reference_data import multimodal_configs
from support.tower_modules import part_with_weights, patches_of, reference_of

TOKENS = {"no crop": 273, "gundam": 903}
"""Tokens of an image of at most 640 pixels a side in DeepSeek-OCR, and of one of 2 × 3 tiles, as its code and vLLM count them."""


def sizes_of(tree: Any) -> WholeAndCrops:
    assert isinstance(tree, Multimodal) and isinstance(tree.vision, DeepTower) and isinstance(tree.vision.image_sizes, WholeAndCrops)
    return tree.vision.image_sizes


def test_images_of_deepseek_ocr_have_published_numbers_of_tokens() -> None:
    tree = llamath.load("deepseek-ocr").tree
    assert image_pass(tree, Images(count=1, width=640, height=500)).tokens == TOKENS["no crop"] == 16 * 17 + 1
    pass_ = image_pass(tree, Images(count=1, width=1000, height=1500))
    assert pass_.tokens == TOKENS["gundam"] == 16 * 17 + 1 + 30 * 21 and pass_.beside == (6, 40, 40)
    assert image_pass(tree, Images(count=3, width=1000, height=1500)).tokens == 3 * TOKENS["gundam"]


def test_tiles_of_deepseek_ocr_are_two_to_nine() -> None:
    sizes = sizes_of(llamath.load("deepseek-ocr").tree)
    for width, height in IMAGES:
        columns, rows = CroppedImage(patch=16, size=640, max_tiles=9, min_tiles=2)._best(width, height)
        tiles = columns * rows if max(width, height) > 640 else 0
        assert 2 <= columns * rows <= 9
        assert sizes.tokens(width, height, 256) == 273 + (rows * 10 if tiles else 0)
        assert (sizes.beside(width, height) or (0,))[0] == tiles


@pytest.mark.transformers
def test_flops_of_deepseek_ocr_equal_those_of_unlimited_ocr() -> None:
    """At full size: the same two encoders and projector, for the whole image and for six tiles."""
    import transformers

    config = transformers.AutoConfig.for_model("unlimited_ocr")
    config.text_config.num_hidden_layers = 1
    with torch.device("meta"):
        reference = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
        pixels, tiles = torch.zeros(1, 3, 1024, 1024), torch.zeros(6, 3, 640, 640)
    with FlopCounterMode(display=False) as counter:
        found = reference.model.get_image_features(pixels, pixel_values_local=tiles, num_local_patches=[6], patches_grid=[[2, 3]])
    images = image_pass(llamath.load("deepseek-ocr").tree, Images(count=1, width=1000, height=1500))
    assert images.tokens == len(found.pooler_output[0])
    assert images.flops.total == counter.get_total_flops()


@pytest.mark.transformers
@torch.no_grad()
def test_features_of_tiles_equal_those_of_unlimited_ocr() -> None:
    """Tiles smaller than the image for which positions and distances were learned, which are interpolated."""
    (config,) = [x.values[0] for x in multimodal_configs() if x.id.startswith("unlimited_ocr-")]
    model, reference = llamath.load(config), reference_of(config)
    sizes = sizes_of(model.tree).replace(tile=24)
    model = model.replace(tree=model.tree.replace(vision=model.tree.vision.replace(image_sizes=sizes)))  # type: ignore[attr-defined]
    images = image_pass(model.tree, Images(count=1, width=60, height=30))
    assert images.beside == (2, 6, 6)
    module, made = part_with_weights(model, reference), []
    reference.model.multi_modal_projector.register_forward_hook(lambda _module, _inputs, y: made.append(y))
    whole, tiles = torch.randn(1, 3, 32, 32), torch.randn(2, 3, 24, 24)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        found = reference.model.get_image_features(whole, pixel_values_local=tiles, num_local_patches=[2], patches_grid=[[2, 1]])
    for pixels, expected in zip((whole, tiles), made, strict=True):
        patches = patches_of(pixels, 4)
        ours = module(TorchMachine(torch.zeros(patches.shape[:2], dtype=torch.long), Cache([], 0)), patches)
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-4)
    assert images.tokens == len(found.pooler_output[0])
    assert images.flops.total == counter.get_total_flops()


@pytest.mark.transformers
@pytest.mark.parametrize("prompt", [1, 5, 30])
@torch.no_grad()
def test_tokens_after_the_prompt_see_it_and_a_window(prompt: int, tmp_path: Path) -> None:
    """Single tokens, and several at once, until there are more than the window after the prompt."""
    import transformers

    (config,) = [x.values[0] for x in multimodal_configs() if x.id.startswith("unlimited_ocr-")]
    reference = reference_of({**config, "text_config": {**config["text_config"], "sliding_window": 6}})
    reference.save_pretrained(tmp_path)
    module = open_model(str(tmp_path), torch.float32).module
    ids = torch.randint(1, 60, (1, prompt + 20), generator=torch.Generator().manual_seed(1))
    ours, theirs = module.new_cache(ids.shape[1]), transformers.DynamicCache(config=reference.config.text_config)
    whole = reference(input_ids=ids).logits
    for part in ids.split([prompt, *[1] * 14, 6], 1):
        expected = reference(input_ids=part, past_key_values=theirs, use_cache=True).logits
        torch.testing.assert_close(module(part, ours), expected, atol=3e-4, rtol=1e-3)
    assert not torch.allclose(whole[:, -1], expected[:, -1], atol=3e-4)


def test_text_of_unlimited_ocr_has_the_window_of_its_file() -> None:
    (config,) = [x.values[0] for x in multimodal_configs() if x.id.startswith("unlimited_ocr-")]
    with pytest.raises(llamath.ConfigError, match="sliding_window is 20, unlike that of the text model"):
        llamath.load({**config, "sliding_window": 20})
    assert any("all tokens of a context count as the prompt" in x for x in llamath.load({**config, "sliding_window": 16}).notes)
