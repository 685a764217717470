"""Which tokens of images attend to later tokens: where transformers gives its masks blocks of tokens, the report says what is not counted."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import llamath
from llamath.analysis.graph.image_pass import Images, image_pass, mask_notes
from support.each_case import each
from support.reference_data import multimodal_configs

pytest.importorskip("transformers")
COMPUTED = {"unlimited_ocr"}
"""Models whose whole mask is that of the forward pass."""


def types_with_blocks() -> set[str]:
    """Return the model types of the tests whose modules in transformers give a mask blocks of consecutive tokens."""
    found = set()
    for name in {x.values[0]["model_type"] for x in multimodal_configs()}:
        try:
            module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        except ImportError:
            continue
        source = inspect.getsource(module)
        if "block_sequence_ids=" in source or '"block_sequence_ids"' in source:
            found.add(name)
    return found


@each("config", multimodal_configs())
def test_models_whose_images_see_later_tokens_are_named(config: dict[str, Any]) -> None:
    tree = llamath.load(config).tree
    name = config["model_type"]
    assert tree.is_multimodal or name in ("florence2", "florence-2")
    sees_later = getattr(tree, "sees_later", "")
    if name in ("gemma4", "gemma4_unified"):
        assert bool(sees_later) == (
            config["text_config"].get("use_bidirectional_attention") == "vision"
        )
    elif name == "shieldgemma2":  # its module in transformers is Gemma 3
        assert sees_later == "image"
    else:
        assert bool(sees_later) == (name in types_with_blocks() - COMPUTED), name


def test_pairs_beyond_the_causal_mask_are_named() -> None:
    images = Images(count=2, width=896, height=896)
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "image_size": 896,
    }
    gemma = llamath.load(
        {
            "model_type": "gemma3",
            "text_config": text,
            "vision_config": vision | {"num_attention_heads": 16, "patch_size": 14},
        }
    )
    (note,) = mask_notes(gemma.tree, image_pass(gemma.tree, images))
    assert note.endswith(
        "later tokens of its own image, too: 32,640 more pairs for each image and layer"
    )
    assert note in llamath.flops(gemma, images="2x896", context=1024).notes
    assert not [x for x in llamath.flops(gemma, context=1024).notes if "later tokens" in x]
