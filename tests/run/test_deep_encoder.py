"""DeepSeek-OCR and Unlimited OCR: tiles and tokens of images, and the text model of the latter compared with transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import llamath
from llamath.core.image_sizes import CroppedImage
from llamath.core.multimodal import CountedTower
from llamath.torch.weights.open_model import open_model
from support.image_processors import IMAGES
from support.reference_data import multimodal_configs
from support.tower_modules import reference_of

TOKENS = {"no crop": 273, "gundam": 903}
"""Tokens of an image of at most 640 pixels a side in DeepSeek-OCR, and of one of 2 × 3 tiles, as its code and vLLM count them."""


def tower_of(slug: str) -> CountedTower:
    tree = llamath.load(slug).tree
    assert tree.is_multimodal and isinstance(tree.vision, CountedTower)
    return tree.vision


def test_images_of_deepseek_ocr_have_published_numbers_of_tokens() -> None:
    tower = tower_of("deepseek-ocr")
    assert tower.tokens(1, 640, 500) == TOKENS["no crop"] == 16 * 17 + 1
    assert tower.tokens(1, 1000, 1500) == TOKENS["gundam"] == 16 * 17 + 1 + 30 * 21
    assert tower.image_sizes.beside(1000, 1500) == (6, 40, 40)
    assert tower.tokens(3, 1000, 1500) == 3 * TOKENS["gundam"]


def test_tiles_of_deepseek_ocr_are_two_to_nine() -> None:
    sizes = tower_of("deepseek-ocr").image_sizes
    for width, height in IMAGES:
        columns, rows = CroppedImage(patch=16, size=640, max_tiles=9, min_tiles=2)._best(
            width, height
        )
        tiles = columns * rows if max(width, height) > 640 else 0
        assert 2 <= columns * rows <= 9
        assert sizes.tokens(width, height, 256) == 273 + (rows * 10 if tiles else 0)
        assert (sizes.beside(width, height) or (0,))[0] == tiles


@pytest.mark.transformers
@pytest.mark.parametrize("prompt", [1, 5, 30])
@torch.no_grad()
def test_tokens_after_the_prompt_see_it_and_a_window(prompt: int, tmp_path: Path) -> None:
    """Single tokens, and several at once, until there are more than the window after the prompt."""
    import transformers

    (config,) = [x.values[0] for x in multimodal_configs() if x.id.startswith("unlimited_ocr-")]
    reference = reference_of(
        {**config, "text_config": {**config["text_config"], "sliding_window": 6}}
    )
    reference.save_pretrained(tmp_path)
    module = open_model(str(tmp_path), torch.float32).module
    ids = torch.randint(1, 60, (1, prompt + 20), generator=torch.Generator().manual_seed(1))
    ours, theirs = (
        module.new_cache(ids.shape[1]),
        transformers.DynamicCache(config=reference.config.text_config),
    )
    whole = reference(input_ids=ids).logits
    for part in ids.split([prompt, *[1] * 14, 6], 1):
        expected = reference(input_ids=part, past_key_values=theirs, use_cache=True).logits
        torch.testing.assert_close(module(part, ours), expected, atol=3e-4, rtol=1e-3)
    assert not torch.allclose(whole[:, -1], expected[:, -1], atol=3e-4)


def test_text_of_unlimited_ocr_has_the_window_of_its_file() -> None:
    (config,) = [x.values[0] for x in multimodal_configs() if x.id.startswith("unlimited_ocr-")]
    with pytest.raises(
        llamath.ConfigError, match="sliding_window is 20, unlike that of the text model"
    ):
        llamath.load({**config, "sliding_window": 20})
    assert any(
        "all tokens of a context count as the prompt" in x
        for x in llamath.load({**config, "sliding_window": 16}).notes
    )
