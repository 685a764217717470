"""Complete multimodal checkpoints that transformers saves are whole; faults of their text models are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint

TEXT = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 211, "head_dim": 16,
}  # fmt: skip
AUDIO = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
VQ = {
    "codebook_size": 16,
    "embed_dim": 2,
    "latent_channels": 2,
    "base_channels": 32,
    "channel_multiplier": [1, 1],
    "num_res_blocks": 1,
    "hidden_size": 32,
}
IMAGE_TOKENS = {"<image>": 5, "<|visual token 000001|>": 6}
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "voxtral": (
        "AutoModelForSpeechSeq2Seq",
        {"text_config": TEXT | {"model_type": "llama"}, "audio_config": AUDIO},
        "audio_tower.",
    ),
    "emu3": (
        "AutoModelForImageTextToText",
        {
            "text_config": TEXT | {"pad_token_id": 0},
            "vq_config": VQ,
            "vocabulary_map": IMAGE_TOKENS,
        },
        "vqmodel.",
    ),
}
"""Model type → the auto class of transformers, a configuration, and the beginning of names of other parts."""


def save(model_type: str, folder: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    auto, keys, _ = MODELS[model_type]
    config = transformers.AutoConfig.for_model(model_type, **keys)
    getattr(transformers, auto).from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.slow
def test_towers_are_another_part_of_the_model(model_type: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    report = verify_checkpoint(str(save(model_type, tmp_path)))
    assert report.ok and [x.code for x in report.findings if x.tensors] == ["other_part"]
    others = next(x for x in report.findings if x.code == "other_part")
    tower = MODELS[model_type][2]
    tensors = load_file(tmp_path / "model.safetensors")
    assert any(x.startswith(tower) for x in others.tensors) and len(
        others.tensors
    ) + report.verdict.matched == len(tensors)
    size = sum(tensors[x].numel() for x in others.tensors)
    assert f"with {size:,} parameters are not part of the text model" in others.message
    assert any(others.message in x for x in llamath.count(tmp_path).to_json()["notes"])
    # faults of the text model are still found
    text = next(
        x for x in tensors if "layers.1." in x and x not in others.tensors and x.endswith(".weight")
    )
    tensors[text.replace(".weight", ".unknown")] = tensors.pop(text)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    broken = verify_checkpoint(str(tmp_path))
    assert not broken.ok and {"missing", "unexpected"} <= {x.code for x in broken.findings}
