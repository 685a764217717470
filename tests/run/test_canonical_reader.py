"""The reader of canonical rows: equal to splitting whole tensors with torch, for every family, naming scheme and layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import llamath
from llamath.checkpoint import canonical_reader
from llamath.checkpoint.canonical_reader import CanonicalReader
from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.checkpoint.naming.scheme import Scheme
from llamath.checkpoint.tensor_reader import MergedTensor, TensorReader
from llamath.model import Model
from llamath.run import canonical_weights
from support.reference_data import tiny_configs


def open_reader(path: Path, model: Model, scheme: Scheme) -> CanonicalReader:
    manifest = read_checkpoint(str(path))
    tensors = {x.name: MergedTensor(x.name, x.dtype, x.shape, (x,)) for x in manifest.tensors}
    return CanonicalReader(model.tree, scheme, tensors, TensorReader(manifest))


def read_all(reader: CanonicalReader, path: str) -> Any:
    weight = reader.weights[path]
    return np.concatenate([reader.read(weight, first, last).values for first, last in weight.spans()]).reshape(weight.shape)


def random_tensors(model: Model, scheme: Scheme) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {x.name: -torch.rand(tuple(map(int, x.shape)), generator=generator) - 0.1 for x in scheme.tensors(model.tree)}


@pytest.mark.parametrize("chunk", [1 << 19, 100])
@pytest.mark.parametrize("config", tiny_configs())
def test_rows_equal_whole_tensors_split_by_torch(
    config: dict[str, Any], chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical_reader, "CHUNK_VALUES", chunk)
    monkeypatch.setattr(canonical_reader, "_MAX_FLIPPED_BYTES", 1 << 26 if chunk > 100 else 64)
    model = llamath.load(config)
    for scheme in model.family.schemes.values():
        tensors = random_tensors(model, scheme)
        save_file(tensors, tmp_path / f"{scheme.name}.safetensors")
        reader = open_reader(tmp_path / f"{scheme.name}.safetensors", model, scheme)
        expected = dict(canonical_weights(model.tree, scheme, tensors))
        assert reader.weights.keys() == expected.keys()
        for path, x in expected.items():
            assert np.allclose(read_all(reader, path), x.numpy(), rtol=0, atol=1e-6), path


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    model = llamath.load({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
                          "num_attention_heads": 2, "vocab_size": 10, "max_position_embeddings": 8})  # fmt: skip
    tensors = random_tensors(model, model.scheme("hf"))
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(llamath.LlamathError, match=r"expected the tensor model\.norm\.weight"):
        open_reader(tmp_path / "model.safetensors", model, model.scheme("hf"))
