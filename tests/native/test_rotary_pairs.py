"""Queries and keys that are stored as interleaved rotary pairs are rotated in that order: the same logits, and no copy of their matrices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import llamath
from llamath.analysis.check.verify.verified_checkpoint import open_verified
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.families.registry import find_family
from llamath.native.native_session import load_native
from llamath.native.rotary_pairs import LAYOUT, is_order_free
from llamath.torch import open_model
from llamath.utils.errors import ConvertError
from support.gguf_files import load_tiny_configs
from support.native_models import native_logits
from support.planted_checkpoints import LLAMA, random_tensors, save_folder

IDS = [1, 5, 9, 31, 3, 3, 20, 17, 30, 2]


def has_pairs(config: Mapping[str, Any]) -> bool:
    family = find_family(config["model_type"])
    return family.gguf is not None and LAYOUT in family.gguf.layouts.values()


WITHOUT_METADATA = ("arcee", "baichuan", "granitemoehybrid")
"""Families whose GGUF metadata is not known, so that their files are neither written nor read."""
PAIRED = {
    x: config
    for x, config in load_tiny_configs().items()
    if has_pairs(config) and not x.startswith(WITHOUT_METADATA)
}


def save(
    folder: Path, config: Mapping[str, Any], kind: str, dtype: torch.dtype = torch.float32
) -> Path:
    """Save a model with random weights in a format with interleaved pairs."""
    model = llamath.load(dict(config))
    assert model.family.hf is not None
    source, target = (
        save_folder(folder / "hf", config, random_tensors(model, model.family.hf, std=0.3), dtype),
        folder / kind,
    )
    convert_checkpoint(str(source), str(target), ConvertOptions(to=kind))
    return target


@torch.no_grad()
def assert_logits_of_torch(stored: Path) -> None:
    model, _, _ = load_native(open_verified(str(stored)), "float32")
    expected = open_model(str(stored), "float32").module(torch.tensor([IDS]))[0]
    torch.testing.assert_close(
        native_logits(model, IDS), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max())
    )


@pytest.mark.parametrize("label", PAIRED)
def test_gguf_logits_equal_those_of_torch(tmp_path: Path, label: str) -> None:
    try:
        stored = save(tmp_path, {"max_position_embeddings": 64} | PAIRED[label], "gguf")
    except ConvertError as error:
        pytest.skip(f"llama.cpp has no such model: {error}")
    assert_logits_of_torch(stored)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["gguf", "meta"])
def test_matrices_stay_in_the_file(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    stored = save(tmp_path, LLAMA, kind, dtype)
    assert_logits_of_torch(stored)
    _, files, store = load_native(open_verified(str(stored)))
    matrices = {
        path: x
        for path, x in store.load().items()
        if path.endswith((".attn.q.weight", ".attn.k.weight"))
    }
    assert len(matrices) == 2 * LLAMA["num_hidden_layers"]
    assert {id(x.owner) for x in matrices.values()} == {id(files.map_file(0)[0])}


def test_norms_and_partial_rotation_need_the_order_of_the_tree() -> None:
    attention = llamath.load("qwen3-0.6b").tree.layers[0].attn
    assert not is_order_free(attention)
    plain = attention.replace(q_norm=None, k_norm=None)
    assert is_order_free(plain)
    for changes in ({"dim": plain.head_dim // 2}, {"interleaved": True}, {"reverse": True}):
        assert not is_order_free(plain.replace(rope=plain.rope.replace(**changes)))
