"""The reader of canonical rows: equal to splitting whole tensors with torch, for every family, naming scheme and layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import llamath
from llamath.checkpoint.canonical_reader import CanonicalReader
from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.checkpoint.naming.scheme import Scheme
from llamath.checkpoint.tensor_reader import MergedTensor, TensorReader
from llamath.model import Model


def open_reader(path: Path, model: Model, scheme: Scheme) -> CanonicalReader:
    manifest = read_checkpoint(str(path))
    tensors = {x.name: MergedTensor(x.name, x.dtype, x.shape, (x,)) for x in manifest.tensors}
    return CanonicalReader(model.tree, scheme, tensors, TensorReader(manifest))


def random_tensors(model: Model, scheme: Scheme) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        x.name: -torch.rand(tuple(map(int, x.shape)), generator=generator) - 0.1
        for x in scheme.tensors(model.tree)
    }


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    model = llamath.load({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
                          "num_attention_heads": 2, "vocab_size": 10, "max_position_embeddings": 8})  # fmt: skip
    tensors = random_tensors(model, model.scheme("hf"))
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(llamath.LlamathError, match=r"expected the tensor model\.norm\.weight"):
        open_reader(tmp_path / "model.safetensors", model, model.scheme("hf"))
