"""Llama 3.2 Vision: layers that attend to images leave text alone as it is, like those of transformers; images are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llamath
from llamath.analysis.graph.image_pass import image_tokens, parse_images

TINY = json.loads((Path(__file__).parent.parent / "tiny_multimodal" / "mllama.json").read_text())[
    "plain"
]


@pytest.mark.transformers
def test_logits_of_text_alone_equal_those_of_transformers(tmp_path: Path) -> None:
    import torch
    import transformers

    from llamath.torch import open_model

    torch.manual_seed(3)
    made = transformers.AutoConfig.for_model(
        "mllama", **{x: y for x, y in TINY.items() if x != "model_type"}
    )
    theirs = transformers.AutoModelForImageTextToText.from_config(
        made, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for x in theirs.parameters():
            x.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path)
    ours = open_model(str(tmp_path), dtype="fp32").module
    ids = torch.randint(0, 70, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(input_ids=ids).logits, atol=1e-4, rtol=1e-4)


def test_images_are_refused_with_their_tokens() -> None:
    slug = "llama-3.2-11b-vision"
    assert image_tokens(llamath.load(slug).tree, parse_images("2x560")) == 2
    for ask in (llamath.flops, llamath.memory):
        with pytest.raises(
            llamath.LlamathError,
            match=r"counted, not computed \(2 images of 560 × 560 pixels: 2 tokens\)",
        ):
            ask(slug, context=4096, images="2x560")
        assert ask(slug, context=4096)
