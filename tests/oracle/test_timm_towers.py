"""Models with a tower of timm, which tests lack: compared with sums of its names and shapes, classes of transformers, published totals."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

import llamath

TEXT = {
    "model_type": "gemma3n_text",
    "hidden_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 262_400,
    "vocab_size_per_layer_input": 262_144,
    "max_position_embeddings": 32_768,
}
TOWERS = {
    "vision_config": {"model_type": "gemma3n_vision"},
    "audio_config": {"model_type": "gemma3n_audio"},
}
E2B = {
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_kv_shared_layers": 10,
    "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 20,
}
E4B = {
    "intermediate_size": 16_384,
    "num_hidden_layers": 35,
    "num_kv_shared_layers": 15,
    "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 25,
}
UNUSED = 2 * 512 * 2048 + 256
"""Parameters of the keys, values and norm that files store for each layer that reads those of another."""
MOBILENET = 548, 294_126_912, "de863a1515fc03447f34db819da0b7a68d5509193507e300c49790e76edad508"
"""Tensors, parameters, and sum of the sorted lines `name AxB` of timm 1.0.31's mobilenetv5_300m_enc without classes."""


def config(**text: Any) -> dict[str, Any]:
    return {"model_type": "gemma3n", "text_config": TEXT | text, **TOWERS}


def shapes(model: llamath.Model, prefix: str) -> dict[str, tuple[int, ...]]:
    """The tensors of a model whose names begin with this."""
    tensors = ((x.name, tuple(map(int, x.shape))) for x in model.family.hf.tensors(model.tree))
    return {name.removeprefix(prefix): shape for name, shape in tensors if name.startswith(prefix)}


@pytest.mark.parametrize(("text", "published"), [(E2B, 5_439_438_272), (E4B, 7_849_978_192)])
def test_total_is_that_of_the_files_without_unused_keys(
    text: dict[str, Any], published: int
) -> None:
    assert (
        llamath.load(config(**text)).parameters.total
        == published - text["num_kv_shared_layers"] * UNUSED
    )


def test_vision_tower_has_the_names_and_shapes_of_timm() -> None:
    model = llamath.load(config(**E2B))
    found = shapes(model, "model.vision_tower.timm_model.")
    lines = "".join(
        f"{name} {'x'.join(map(str, shape))}\n" for name, shape in sorted(found.items())
    )
    total = sum(int(x.weight.size) for x in model.weights if x.path.startswith("vision."))
    assert (len(found), total, sha256(lines.encode()).hexdigest()) == MOBILENET


def test_another_vision_tower_is_not_counted() -> None:
    model = llamath.load({**config(**E2B), "vision_config": {"architecture": "resnet50"}})
    assert any("not counted" in x and "resnet50" in x for x in model.notes)


SMALL_SOUND = {
    "hidden_size": 48, "conf_num_attention_heads": 4, "conf_num_hidden_layers": 3, "conf_conv_kernel_size": 3, "input_feat_size": 21,
    "sscp_conv_channel_size": [6, 4], "sscp_conv_kernel_size": [[3, 3], [3, 5]], "vocab_size": 20,
}  # fmt: skip


@pytest.mark.transformers
@pytest.mark.parametrize("sound", [{}, SMALL_SOUND])
def test_audio_tower_and_projectors_equal_transformers(sound: dict[str, Any]) -> None:
    import torch
    import transformers
    from transformers.models.gemma3n.modeling_gemma3n import (
        Gemma3nAudioEncoder,
        Gemma3nMultimodalEmbedder,
    )

    given = config(**E2B) | {"audio_config": TOWERS["audio_config"] | sound}
    audio, text = (
        transformers.Gemma3nAudioConfig(**sound),
        transformers.Gemma3nTextConfig(**dict(given["text_config"].items())),
    )
    vision = transformers.Gemma3nVisionConfig()
    model = llamath.load(given)
    with torch.device("meta"):
        modules = {
            "model.audio_tower.": Gemma3nAudioEncoder(audio),
            "model.embed_audio.": Gemma3nMultimodalEmbedder(audio, text),
            "model.embed_vision.": Gemma3nMultimodalEmbedder(vision, text),
        }
    for prefix, module in modules.items():
        assert shapes(model, prefix) == {
            name: tuple(x.shape) for name, x in module.state_dict().items()
        }


ENCODERS = {
    "vit_pe_core_large_patch14_336": (
        1024,
        23,
        [448, 448],
        0.1,
        False,
        327,
        "1924137b54b0699a8fe2305a8535f467953cabf8744ce6db475e58eea514ca94",
    ),
    "vit_pe_core_gigantic_patch14_448": (
        1536,
        3,
        [28, 28],
        None,
        True,
        42,
        "840e44fde15776c4a7154b3dc74a25a5633314eca0b7e2f3abd9f7a0d0e76e98",
    ),
}
"""Arguments of Perception LM's towers, and tensors and sum of the sorted lines `name AxB` of timm 1.0.31."""
LLAMA = {
    "model_type": "llama", "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 70,
}  # fmt: skip


def perception(name: str, **changes: Any) -> dict[str, Any]:
    width, depth, size, scale, normed, *_ = ENCODERS[name]
    given = {
        "embed_dim": width,
        "depth": depth,
        "img_size": size,
        "init_values": scale,
        "use_post_transformer_norm": normed,
        "global_pool": "",
    }
    return {
        "model_type": "perception_lm",
        "text_config": LLAMA,
        "vision_config": {"architecture": name, "model_args": given | changes},
    }


@pytest.mark.parametrize("name", ENCODERS)
def test_perception_encoder_has_the_names_and_shapes_of_timm(name: str) -> None:
    found = shapes(llamath.load(perception(name)), "model.vision_tower.timm_model.")
    lines = "".join(f"{x} {'x'.join(map(str, shape))}\n" for x, shape in sorted(found.items()))
    assert (len(found), sha256(lines.encode()).hexdigest()) == ENCODERS[name][-2:]


@pytest.mark.parametrize("changes", [{"embed_dim": 768}, {"global_pool": "map"}, {"mlp_ratio": 2}])
def test_other_arguments_of_timm_are_not_counted(changes: dict[str, Any]) -> None:
    model = llamath.load(perception("vit_pe_core_large_patch14_336", **changes))
    assert any("not counted" in x for x in model.notes)
    assert model.parameters.total == llamath.load(LLAMA).parameters.total


FASTVIT = 628, 122_714_208, "eb591506a73425e632fbc5732f1f66ef0b116b2a921090f85172db5fd2e99263"
"""The same as of MobileNet-V5 of fastvit_mci3 in inference mode; the parameters are those without the buffers of norms."""


def test_fast_vlm_has_the_names_and_shapes_of_timm() -> None:
    model = llamath.load(
        {
            "model_type": "fast_vlm",
            "text_config": LLAMA,
            "vision_config": {"architecture": "fastvit_mci3"},
        }
    )
    found = shapes(model, "model.vision_tower.timm_model.")
    lines = "".join(f"{x} {'x'.join(map(str, shape))}\n" for x, shape in sorted(found.items()))
    total = sum(
        int(x.weight.size)
        for x in model.weights
        if x.path.startswith("vision.") and not x.weight.buffer
    )
    assert (len(found), total, sha256(lines.encode()).hexdigest()) == FASTVIT
