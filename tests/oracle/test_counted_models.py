"""Models that are counted by their modules, compared with the classes of transformers and with published files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import llamath

TEXT = {
    "model_type": "bart", "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 32, "vocab_size": 70,
}  # fmt: skip
VISION = {
    "model_type": "florence_vision", "depths": [1, 2], "embed_dim": [8, 12], "num_heads": [2, 3], "num_groups": [2, 3], "mlp_ratio": 3.0,
    "patch_size": [5, 3], "patch_stride": [4, 2], "patch_padding": [2, 1], "patch_prenorm": [False, True], "window_size": 4,
    "projection_dim": 24, "max_temporal_embeddings": 6, "max_position_embeddings": 9,
}  # fmt: skip
FLORENCE2: dict[str, dict[str, Any]] = {
    "plain": {"text_config": TEXT, "vision_config": VISION},
    "unbiased, untied, norms first": {
        "text_config": TEXT | {"tie_word_embeddings": False},
        "vision_config": VISION
        | {"qkv_bias": False, "patch_prenorm": [True, False], "in_channels": 1},
        "tie_word_embeddings": False,
    },
    "default": {},
}
ORIGINAL = {
    "dim_embed": VISION["embed_dim"], "model_type": "davit", "visual_temporal_embedding": {"max_temporal_embeddings": 6, "type": "COSINE"},
    "image_pos_embed": {"max_pos_embeddings": 9, "type": "learned_abs_2d"},
}  # fmt: skip
CONVERSION = (
    *(
        (r"^vision_tower", "model.vision_tower"),
        (r"convs\.(\d+)\.proj", r"convs.\1.conv"),
        (r"\.fn\.dw\.", "."),
        (r"\.fn\.net\.fc", ".fc"),
    ),
    *((r"(window|channel)_attn\.norm", "norm1"), (r"ffn\.norm", "norm2"), (r"attn\.fn\.", "attn.")),
    *(
        (r"^image_projection$", "model.multi_modal_projector.image_projection.weight"),
        (r"^image_pos_embed", "image_position_embed"),
    ),
    *(
        (
            r"^(image_proj_norm|image_position_embed|visual_temporal_embed)",
            r"model.multi_modal_projector.\1",
        ),
    ),
    *(
        (r"^language_model\.model\.", "model.language_model."),
        (r"^language_model\.lm_head", "lm_head"),
    ),
)
"""The renamings of transformers' convert_florence2_original_pytorch_to_hf.py."""


def build(config: dict[str, Any]) -> Any:
    import torch
    import transformers

    with torch.device("meta"):
        return transformers.AutoModelForImageTextToText.from_config(
            transformers.AutoConfig.for_model("florence2", **config)
        )


def tensors(model: Any) -> dict[str, tuple[int, ...]]:
    return {x.name: x.shape for x in model.tensors}


@pytest.mark.transformers
@pytest.mark.parametrize("label", FLORENCE2)
def test_names_shapes_ties_and_total_equal_transformers(label: str) -> None:
    reference = build(FLORENCE2[label])
    model: Any = llamath.load(json.loads(reference.config.to_json_string()))
    state = reference.state_dict(keep_vars=True)
    assert tensors(model) == {name: tuple(x.shape) for name, x in state.items()}
    assert all(state[x.name] is state[x.tied] for x in model.tensors if x.tied)
    assert model.parameters.total == sum(x.numel() for x in reference.parameters())
    given = llamath.load(reference)
    assert isinstance(given, llamath.TensorModel) and given.computed is not None
    assert given.parameters == model.parameters


@pytest.mark.transformers
def test_saved_checkpoint_is_whole(tmp_path: Path) -> None:
    import transformers

    config = transformers.AutoConfig.for_model("florence2", **FLORENCE2["plain"])
    transformers.AutoModelForImageTextToText.from_config(config).save_pretrained(tmp_path)
    report = llamath.verify(tmp_path)
    assert report.ok and not [x for x in report.findings if x.tensors]


def test_original_names_are_those_that_transformers_converts() -> None:
    vision = {
        key: x
        for key, x in VISION.items()
        if key not in ("embed_dim", "max_temporal_embeddings", "max_position_embeddings")
    }
    config = {
        "model_type": "florence2",
        "text_config": TEXT | {"model_type": "florence2_language"},
        "vision_config": vision | ORIGINAL,
    }
    original, ours = (
        llamath.load(config),
        llamath.load({"model_type": "florence2", **FLORENCE2["plain"]}),
    )
    converted: dict[str, tuple[int, ...]] = {}
    for name, shape in tensors(original).items():
        for old, new in CONVERSION:
            name = re.sub(old, new, name)
        converted[name] = shape[::-1] if name.endswith("image_projection.weight") else shape
    del converted[
        "language_model.final_logits_bias"
    ]  # BART's buffer of zeros, which transformers leaves out
    assert converted == tensors(ours)
    assert original.parameters.total == ours.parameters.total


def test_published_sizes() -> None:
    """0.23B and 0.77B."""
    base = {
        "d_model": 768,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_ffn_dim": 3072,
        "decoder_ffn_dim": 3072,
        "vocab_size": 51289,
    }
    small = llamath.load(
        {"model_type": "florence2", "text_config": base, "vision_config": {"projection_dim": 768}}
    )
    widths = [256, 512, 1024, 2048]
    large = llamath.load(
        {
            "model_type": "florence2",
            "text_config": {"vocab_size": 51289},
            "vision_config": {"embed_dim": widths},
        }
    )
    assert [f"{x.parameters.total / 1e9:.2f}B" for x in (small, large)] == ["0.23B", "0.77B"]


def test_other_questions_are_refused() -> None:
    model = llamath.load({"model_type": "florence2"})
    with pytest.raises(llamath.LlamathError, match="as an encoder-decoder model"):
        llamath.rank_gpus(model)
    with pytest.raises(llamath.LlamathError, match="as an encoder-decoder model"):
        llamath.facts(model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vision_config": VISION | {"depths": [1]}},
            "depths should have as many stages as embed_dim, 2",
        ),
        (
            {"vision_config": VISION | {"embed_dim": ["a", 2]}},
            "embed_dim should list a int for each stage",
        ),
        ({"vision_config": VISION | {"patch_prenorm": [0, 1]}}, "patch_prenorm should list a bool"),
    ],
)
def test_wrong_values_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.ConfigError, match=message):
        llamath.load({"model_type": "florence2", "text_config": TEXT, **changes})


def test_changed_keys_are_read_or_named() -> None:
    config = {"model_type": "florence2", **FLORENCE2["plain"]}
    untied = llamath.load(config, changes={"tie_word_embeddings": False})
    assert untied.parameters.total == llamath.load(config).parameters.total + 70 * 24
    with pytest.raises(llamath.ConfigError, match="unknown config key 'hidden_siz'"):
        llamath.load(config, changes={"hidden_siz": 3})
