"""GGUF files that llama.cpp would refuse to load are not written without --force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.catalog import presets
from llamath.checkpoint.gguf_metadata.loaded_tensors import loading_problems
from llamath.cli import cli
from llamath.conversion.gguf_model_keys import gguf_model_keys
from llamath.utils.errors import ConvertError, LlamathError
from support.reference_data import tiny_configs

pytest.importorskip("torch")
pytest.importorskip("safetensors")
from support.planted_checkpoints import LLAMA, random_tensors, save_folder

REFUSED_PRESETS = {"falcon-rw-1b", "gpt-j-6b"}
"""Presets whose architecture llama.cpp has without their biases, or only by name."""
OLMO = {
    "model_type": "olmo2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": True,
}  # fmt: skip
QWEN = OLMO | {
    "model_type": "qwen3",
    "attention_bias": True,
    "head_dim": 16,
    "tie_word_embeddings": False,
}


def problems(config: Any) -> list[str] | None:
    """What llama.cpp would refuse; None if the model has no GGUF form."""
    model = llamath.load(config)
    try:
        keys = gguf_model_keys(model)
        return loading_problems(
            keys.arch, [*(x.name for x in model.scheme("gguf").tensors(model.tree)), *keys.tensors]
        )
    except LlamathError:
        return None


def checkpoint(folder: Path, config: dict[str, Any]) -> Path:
    model = llamath.load(config)
    return save_folder(folder, config, random_tensors(model, model.scheme("hf")))


def test_published_models_are_loaded() -> None:
    found = {x.slug: problems(x.slug) for x in presets()}
    assert sum(x == [] for x in found.values()) > 250
    assert {slug for slug, x in found.items() if x} == REFUSED_PRESETS


def test_some_tiny_configs_are_refused() -> None:
    found = [problems(x.values[0]) for x in tiny_configs()]
    assert sum(x == [] for x in found) > 90 and 25 < sum(bool(x) for x in found) < 60


@pytest.mark.parametrize(
    ("arch", "names", "expected"),
    [
        ("llama", ["rope_freqs.weight", "blk.1.attn_q.bias", "blk.0.ffn_up.weight.scale"], ""),
        ("gptj", [], "llama.cpp has a name for the architecture gptj and cannot load it"),
        (
            "qwen3",
            ["blk.0.attn_output.bias", "blk.1.attn_output.bias"],
            "llama.cpp has no attn_output.bias in its layers for architecture qwen3",
        ),
        (
            "phi2",
            ["blk.0.attn_q_norm.weight", "blk.0.attn_q_norm.bias"],
            "no attn_q_norm.weight in its layers for architecture phi2",
        ),
        ("olmo2", [], "llama.cpp needs output.weight for architecture olmo2"),
    ],
)
def test_tensors_are_compared_with_those_of_the_loader(
    arch: str, names: list[str], expected: str
) -> None:
    found = loading_problems(arch, names)
    extra = [x for x in found if "needs" not in x]
    assert (
        any(expected in x for x in found)
        if expected
        else not [x for x in extra if "scale" not in x]
    )


def test_files_that_would_not_load_are_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "qwen", QWEN)
    with pytest.raises(
        ConvertError,
        match=r"no attn_output\.bias in its layers for architecture qwen3: it would refuse to load",
    ) as caught:
        llamath.convert(source, tmp_path / "x.gguf", names="gguf")
    assert "force=True" in caught.value.hint and not (tmp_path / "x.gguf").exists()
    report = llamath.convert(source, tmp_path / "x.gguf", names="gguf", force=True)
    assert (
        any("would refuse to load the file" in x for x in report.notes)
        and (tmp_path / "x.gguf").exists()
    )
    assert llamath.same(source, tmp_path / "x.gguf").verdict == "identical"


def test_names_follow_from_a_gguf_target(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a", LLAMA)
    run = lambda *args: CliRunner().invoke(cli, ["convert", str(source), *map(str, args)])  # noqa: E731
    done = run(tmp_path / "x.gguf", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["files"][0]["path"] == str(
        tmp_path / "x.gguf"
    )
    assert (
        llamath.convert(source, tmp_path / "y.gguf").tensors == json.loads(done.stdout)["tensors"]
    )
    for target in ("b", "c.safetensors"):
        missing = run(tmp_path / target)
        assert missing.exit_code == 2 and "--names" in missing.stderr and "hf" in missing.stderr
    with pytest.raises(LlamathError, match="names"):
        llamath.convert(source, tmp_path / "b")
    (tmp_path / "folder.gguf").mkdir()
    assert run(tmp_path / "folder.gguf").exit_code == 2, "a folder of this name says nothing"
