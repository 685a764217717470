"""Small checkpoints of random weights in every file format, with defects planted in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

import llamath
from support.gguf_files import open_gguf_writer

Weights = dict[str, torch.Tensor]
DENSE: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}  # fmt: skip
SPARSE: dict[str, Any] = {
    "model_type": "mixtral", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 6, "num_experts_per_tok": 2,
}  # fmt: skip
TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
QUANTIZED = ("Q8_0", "Q4_0", "Q5_1", "Q4_K", "Q6_K", "IQ4_XS")
"""Block types whose tensors have dimensions of 256."""


def random_weights(config: Mapping[str, Any], scheme: str = "hf", seed: int = 0) -> Weights:
    """Return normally distributed weights of a model by their stored names; norms are near one."""
    model = llamath.load(dict(config))
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for x in model.scheme(scheme).tensors(model.tree):
        shape = tuple(map(int, x.shape))
        weights[x.name] = torch.randn(shape, generator=generator) * (
            0.1 if len(shape) > 1 else 0.01
        ) + (len(shape) == 1)
    return weights


def write_checkpoint(
    folder: Path,
    kind: str,
    change: Callable[[Weights], object] = lambda _: None,
    config: Mapping[str, Any] = DENSE,
) -> Path:
    """Write a checkpoint as `FORMAT-DTYPE` after a change of its weights; return the path to verify."""
    form, dtype = kind.split("-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    weights = random_weights(config, "gguf" if form == "gguf" else "hf")
    if dtype not in TYPES:
        return write_gguf_blocks(folder / "model.gguf", weights, dtype, change, config)
    weights = {name: x.to(TYPES[dtype]) for name, x in weights.items()}
    change(weights)
    if form == "safetensors":
        save_file(
            {name: x.contiguous() for name, x in weights.items()},
            folder / "model.safetensors",
            {"format": "pt"},
        )
    elif form == "torch":
        torch.save(weights, folder / "pytorch_model.bin")
    elif form == "legacy":
        torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    else:
        writer = gguf_writer(folder / "model.gguf", config)
        for name, x in weights.items():
            bits = x.view(torch.uint16).numpy() if dtype == "BF16" else x.numpy()
            writer.add_tensor(
                name, bits, raw_dtype=gguf.GGMLQuantizationType[dtype], raw_shape=bits.shape
            )
        finish(writer)
        return folder / "model.gguf"
    return folder


def write_gguf_blocks(
    path: Path,
    weights: Weights,
    dtype: str,
    change: Callable[[Weights], object],
    config: Mapping[str, Any],
) -> Path:
    """Write a GGUF file whose matrices are blocks of random bytes with sound scales; the changes are made to their bytes."""
    kind, draw = gguf.GGMLQuantizationType[dtype], np.random.default_rng(0)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    writer = gguf_writer(path, config)
    stored: Weights = {}
    for name, x in weights.items():
        if x.dim() == 1:
            stored[name] = x
            continue
        blocks = draw.integers(0, 256, (x.numel() // block, size), dtype=np.uint8)
        for at in {"Q5_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,)}.get(dtype, (0,)):
            blocks[:, at : at + 2] = (
                (draw.uniform(0.5, 1.5, (len(blocks), 1)) * 0.01).astype("<f2").view(np.uint8)
            )
        stored[name] = torch.from_numpy(blocks.reshape(*x.shape[:-1], -1))
    change(stored)
    for name, x in stored.items():
        raw = x.numpy()
        writer.add_tensor(name, raw, raw_dtype=kind if raw.dtype == np.uint8 else None)
    finish(writer)
    return path


def gguf_writer(path: Path, config: Mapping[str, Any]) -> gguf.GGUFWriter:
    keys = {
        "block_count": config["num_hidden_layers"], "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"], "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"], "context_length": 64, "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": config["vocab_size"],
    }  # fmt: skip
    if "num_local_experts" in config:
        keys |= {
            "expert_count": config["num_local_experts"],
            "expert_used_count": config["num_experts_per_tok"],
        }
    return open_gguf_writer(path, "llama", keys, 0)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_packed(folder: Path, config: Mapping[str, Any], tensors: Weights) -> Path:
    """Write a folder with a config and these tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder
