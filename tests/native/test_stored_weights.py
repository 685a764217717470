"""The native engine reads the same weights from files as the torch engine, in every family's stored layout."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import llamath
from llamath.analysis.check.verify.verified_checkpoint import open_verified
from llamath.families.registry import find_family
from llamath.generation.mapped_files import MappedFiles
from llamath.native.library import F32
from llamath.native.native_session import load_native
from llamath.native.weights import Stored, WeightStore
from llamath.torch import canonical_weights
from support.native_models import native_logits
from support.reference_data import tiny_configs, unproven_configs
from support.transformers_pair import logits, pair


def write_checkpoint(folder: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Write a checkpoint with random weights under the names and in the layouts of published files; return its tensors."""
    model = llamath.load(dict(config))
    generator = torch.Generator().manual_seed(0)
    tensors = {
        x.name: torch.randn(tuple(map(int, x.shape)), generator=generator) * 0.3
        - 2 * ("decay" in x.layout)
        for x in model.family.hf.tensors(model.tree)
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


def values(x: Stored) -> torch.Tensor:
    """Return the values of a weight in memory."""
    assert x.type == F32
    return torch.frombuffer(
        (ctypes.c_float * (x.rows * x.cols)).from_address(x.address), dtype=torch.float32
    )


def test_weights_of_every_family_are_those_of_torch(tmp_path: Path) -> None:
    families: dict[str, dict[str, Any]] = {}
    for x in (*tiny_configs(), *unproven_configs()):
        config: dict[str, Any] = x.values[0]
        families.setdefault(str(config["model_type"]), config)
    for name, config in families.items():
        if not find_family(name).hf.layouts:
            continue
        tensors = write_checkpoint(tmp_path / name, config)
        checkpoint = open_verified(str(tmp_path / name))
        found = WeightStore(
            checkpoint, MappedFiles(checkpoint.manifest), None, stored_pairs=False
        ).load()
        expected = dict(canonical_weights(checkpoint.model.tree, checkpoint.scheme, tensors))
        assert found.keys() == expected.keys(), name
        for path, x in expected.items():
            assert torch.allclose(values(found[path]), x.flatten().float(), rtol=1e-6), (name, path)


@pytest.mark.transformers
@torch.no_grad()
def test_saved_dbrx_has_the_logits_of_transformers_and_of_torch(tmp_path: Path) -> None:
    for i, x in enumerate(y for y in tiny_configs() if str(y.id).startswith("dbrx-")):
        both = pair(x.values[0])
        both.theirs.save_pretrained(tmp_path / str(i))
        model, _, _ = load_native(open_verified(str(tmp_path / str(i))))
        ids = both.ids(20)
        found = native_logits(model, ids[0].tolist())
        assert torch.allclose(found, logits(both.theirs, ids)[0], atol=1e-4, rtol=1e-4)
        assert torch.allclose(found, both.ours(ids)[0], atol=1e-4, rtol=1e-4)
