"""Conversion of every family: every tiny config between Hugging Face, fused experts and GGUF, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import save_file

import llamath
from llamath.conversion.convert_checkpoint import (
    ConversionReport,
    ConvertOptions,
    convert_checkpoint,
)
from llamath.families.registry import FAMILIES
from llamath.utils.errors import LlamathError
from support.gguf_files import load_tiny_configs
from support.reference_data import multimodal_configs

CONFIGS = load_tiny_configs()


def write_checkpoint(folder: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Write a Hugging Face checkpoint of random bfloat16 numbers, and return its tensors."""
    model = llamath.load(config)
    generator = torch.Generator().manual_seed(0)
    shapes = {x.name: tuple(map(int, x.shape)) for x in model.scheme("hf").tensors(model.tree)}
    tensors = {
        name: (torch.randn(shape, generator=generator) / 10).bfloat16()
        for name, shape in shapes.items()
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}))
    return tensors


def convert(source: Path, target: Path, kind: str, **options: Any) -> ConversionReport:
    forced = {"force": True} if kind == "gguf" else {}  # also what llama.cpp would not load
    return convert_checkpoint(
        str(source), str(target), ConvertOptions(to=kind, **forced, **options)
    )


def test_class_in_config_is_that_of_transformers(tmp_path: Path) -> None:
    """A new family says in its decorator which class it has in transformers."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    for model_type, family in FAMILIES.import_all().items():
        declared = family.causal_class if model_type == family.types[0] else ""
        if model_type in CLASSES and model_type != "gemma3":  # which wraps a text model
            assert declared == CLASSES[model_type]
        elif declared:  # listed under a wrapper, or not at all
            assert getattr(transformers, declared).config_class.model_type == model_type
    write_checkpoint(tmp_path / "a", CONFIGS["qwen3-plain"])
    convert(tmp_path / "a", tmp_path / "b", "hf")
    assert json.loads((tmp_path / "b" / "config.json").read_text())["architectures"] == [
        "Qwen3ForCausalLM"
    ]


def test_every_model_type_belongs_to_a_family_that_was_tested() -> None:
    families = FAMILIES.import_all()
    tested = {families[config["model_type"]].module for config in CONFIGS.values()}
    tested |= {llamath.load(config.values[0]).text.family.name for config in multimodal_configs()}
    elsewhere = {"glm4v", "mistral", "qwen2_vl", "qwen3_vl", "phi_msft"}
    elsewhere |= {
        "deepseek_v41",
        "kimi_k3",
        "moondream",
    }  # tests/oracle/test_deepseek_v41.py, test_kimi_k3.py, tests/run/test_tiles.py
    assert {x.module for x in families.values()} - tested <= elsewhere


def test_experts_cannot_be_fused_where_there_are_none(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", CONFIGS["llama-plain"])
    with pytest.raises(LlamathError, match="llama family has no experts that can be fused"):
        convert(tmp_path / "a", tmp_path / "b", "hf-fused")


def test_an_architecture_without_names_here_is_said_to_be_one(tmp_path: Path) -> None:
    """gguf-py lists what llama.cpp has."""
    families = FAMILIES.import_all().values()
    unnamed = {x.gguf_arch for x in families if x.gguf is None and x.gguf_arch}
    assert {"apertus", "falcon-h1", "gemma3n"} <= unnamed <= set(gguf.MODEL_ARCH_NAMES.values())
    label = next(x for x in CONFIGS if x.startswith("step3p5"))
    write_checkpoint(tmp_path / "a", CONFIGS[label])
    with pytest.raises(LlamathError, match=r"llama\.cpp has the architecture step35"):
        llamath.convert(tmp_path / "a", tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("apertus", "reads the slopes of xIELU, which are tensors here, from the metadata"),
        ("falcon_h1", "multiplies the factors of the config into the weights"),
        ("gemma3n", "reads the projections of all residual streams from one tensor"),
    ],
)
def test_the_reason_without_gguf_is_told(family: str, reason: str, tmp_path: Path) -> None:
    """gguf-py has the slopes among its keys, and one tensor for all projections."""
    assert gguf.Keys.xIELU.ALPHA_P == "xielu.alpha_p"
    one = gguf.TENSOR_NAMES[gguf.MODEL_TENSOR.ALTUP_PROJ]
    assert (
        "{" not in one
        and gguf.MODEL_TENSOR.ALTUP_PROJ in gguf.MODEL_TENSORS[gguf.MODEL_ARCH.GEMMA3N]
    )
    write_checkpoint(tmp_path / "a", CONFIGS[next(x for x in CONFIGS if x.startswith(family))])
    with pytest.raises(LlamathError, match=reason):
        llamath.convert(tmp_path / "a", tmp_path / "x.gguf")
