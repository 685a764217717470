"""InternVL under its authors' names: the published total, and names that the conversion of transformers maps to its class."""

from __future__ import annotations

import re
from typing import Any

import pytest

import llamath

VISION: dict[str, Any] = {
    "model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "image_size": 448, "patch_size": 14, "num_channels": 3, "norm_type": "layer_norm", "qk_normalization": False, "qkv_bias": True,
    "hidden_act": "gelu", "layer_norm_eps": 1e-6, "drop_path_rate": 0.0, "use_flash_attn": True,
}  # fmt: skip
INTERNVL2_8B: dict[str, Any] = {
    "model_type": "internvl_chat", "downsample_ratio": 0.5, "dynamic_image_size": True, "force_image_size": 448, "max_dynamic_patch": 12,
    "min_dynamic_patch": 1, "pad2square": False, "ps_version": "v2", "select_layer": -1, "template": "internlm2-chat",
    "use_thumbnail": True, "vision_config": VISION,
    "llm_config": {
        "model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 92553, "bias": False, "tie_word_embeddings": False, "hidden_act": "silu",
        "max_position_embeddings": 32768, "rope_theta": 1000000, "rope_scaling": {"factor": 2.0, "type": "dynamic"},
        "rms_norm_eps": 1e-5,
    },
}  # fmt: skip
TOTAL_SIZE = 16_150_730_752
"""`metadata.total_size` of model.safetensors.index.json of OpenGVLab/InternVL2-8B, in bfloat16."""

RENAMED = (
    *(
        ("vision_model", "vision_tower"),
        ("layers", "layer"),
        ("class_embedding", "cls_token"),
        ("position_embedding", "position_embeddings"),
    ),
    *(
        ("patch_embedding", "patch_embeddings.projection"),
        (r"ls(\d+)", r"lambda_\1"),
        ("attn.proj", "attention.projection_layer"),
    ),
    *(("attn", "attention"), ("norm1", "layernorm_before"), ("norm2", "layernorm_after")),
)
PROJECTOR = {"mlp1.0": "layer_norm", "mlp1.1": "linear_1", "mlp1.3": "linear_2"}
"""The renamings of transformers' convert_internvl_weights_to_hf.py."""


def converted(name: str) -> list[str]:
    """The names of transformers for a tensor; one matrix of queries, keys and values becomes three."""
    if name.startswith("mlp1"):
        return [f"multi_modal_projector.{PROJECTOR[name[:6]]}{name[6:]}"]
    if not name.startswith("vision_model"):
        return [name]
    for old, new in RENAMED:
        name = re.sub(old, new, name)
    return (
        [name.replace("attention.qkv", f"attention.{x}_proj") for x in "qkv"]
        if "qkv" in name
        else [name]
    )


def test_total_equals_the_published_index() -> None:
    model = llamath.load(INTERNVL2_8B)
    assert 2 * model.parameters.total == TOTAL_SIZE
    assert (
        sum(2 * int(x.size) for x in (leaf.weight for leaf in model.weights) if not x.tied)
        == TOTAL_SIZE
    )
    assert model.notes == ()


@pytest.mark.parametrize(
    "changes",
    [{}, {"qk_normalization": True, "qkv_bias": False, "norm_type": "rms_norm"}],
    ids=["300M", "with norms of queries and keys"],
)
def test_names_become_those_of_the_converted_model(changes: dict[str, Any]) -> None:
    small = {
        "hidden_size": 24,
        "intermediate_size": 36,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "image_size": 56,
    }
    text = {
        "model_type": "qwen2",
        "hidden_size": 16,
        "intermediate_size": 20,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": 30,
    }
    chat = llamath.load(
        {
            **INTERNVL2_8B,
            "vision_config": {**VISION, **small, **changes},
            "llm_config": {**text, "tie_word_embeddings": False},
        }
    )
    keys = {
        "use_qk_norm": "qk_normalization",
        "attention_bias": "qkv_bias",
        "norm_type": "norm_type",
    }
    vision = {
        **small,
        "patch_size": 14,
        **{new: {**VISION, **changes}[old] for new, old in keys.items()},
    }
    hf = llamath.load(
        {
            "model_type": "internvl",
            "text_config": text,
            "vision_config": vision,
            "tie_word_embeddings": False,
        }
    )
    assert chat.parameters == hf.parameters
    names = [y for x in chat.scheme("hf").tensors(chat.tree) for y in converted(x.name)]
    assert sorted(names) == sorted(x.name for x in hf.scheme("hf").tensors(hf.tree))


def test_tower_without_its_keys_is_refused() -> None:
    with pytest.raises(llamath.ConfigError, match=r"vision_config\.qkv_bias is missing"):
        llamath.load(
            {
                **INTERNVL2_8B,
                "vision_config": {key: x for key, x in VISION.items() if key != "qkv_bias"},
            }
        )
