"""Checkpoints with random weights for any configuration, in any naming scheme and dtype, with planted changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

import llamath
from llamath.checkpoint.naming.scheme import Scheme, fused_scheme
from llamath.model import Model

LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
Tensors = dict[str, Tensor]


def random_tensors(model: Model, scheme: Scheme, seed: int = 0, std: float = 0.05) -> Tensors:
    """Random tensors of a model under a scheme."""
    generator = torch.Generator().manual_seed(seed)
    return {
        x.name: torch.randn(tuple(map(int, x.shape)), generator=generator) * std
        for x in scheme.tensors(model.tree)
    }


def save_folder(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Tensors,
    dtype: torch.dtype | None = torch.bfloat16,
) -> Path:
    """Write a folder in Hugging Face's format; `dtype` None keeps the dtypes of the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: x.to(dtype or x.dtype).contiguous().clone() for name, x in tensors.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(dict(config)))
    return folder


def plant(
    folder: Path,
    change: Callable[[Tensors], object] = lambda _: None,
    config: Mapping[str, Any] = LLAMA,
    seed: int = 0,
    **options: Any,
) -> Path:
    """Write a checkpoint with random weights of which some are changed; the same seed gives the same weights in bfloat16."""
    model = llamath.load(config)
    tensors = {
        name: x.bfloat16().float()
        for name, x in random_tensors(model, model.scheme("hf"), seed).items()
    }
    change(tensors)
    return save_folder(folder, config, tensors, **options)


def fuse_experts(model: Model, tensors: Tensors) -> Tensors:
    """The tensors as transformers 5 fuses the experts of a layer."""
    fused = fused_scheme(model.scheme("hf"))
    assert fused is not None
    result: Tensors = {}
    one_by_one = {
        (p.pattern, p.indices, layer(x.name)): tensors[x.name]
        for x in model.scheme("hf").tensors(model.tree)
        for p in x.parts
    }
    for x in fused.tensors(model.tree):
        parts = [one_by_one[p.pattern, p.indices, layer(x.name)] for p in x.parts]
        if parts[0].shape == tuple(map(int, x.shape)):
            result[x.name] = parts[0]
            continue
        experts = sorted({p.indices for p in x.parts})
        stack = [
            torch.cat(
                [one_by_one[p.pattern, p.indices, layer(x.name)] for p in x.parts if p.indices == e]
            )
            for e in experts
        ]
        result[x.name] = torch.stack(stack)
    return result


def layer(name: str) -> str:
    """The number of the layer in a name."""
    return next((x for x in name.split(".") if x.isdigit()), "")


def quantize_gguf(source: Path, target: Path, dtype: str) -> Path:
    """Copy a GGUF file with its matrices quantized by the gguf package."""
    import gguf

    reader = gguf.GGUFReader(source)
    arch = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    writer = gguf.GGUFWriter(target, arch)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = field.contents()
        kind = field.types[0]
        writer.add_key_value(
            key, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        )
    quantization = gguf.GGMLQuantizationType[dtype]
    for x in reader.tensors:
        shape = tuple(int(n) for n in reversed(x.shape))
        data = np.array(x.data)
        if x.tensor_type == gguf.GGMLQuantizationType.BF16:
            data = (data.view("<u2").astype("<u4") << 16).view("<f4")
        data = data.reshape(shape)
        if len(shape) > 1:
            writer.add_tensor(
                x.name,
                gguf.quants.quantize(data.astype("f4"), quantization),
                raw_dtype=quantization,
            )
        else:
            writer.add_tensor(x.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
