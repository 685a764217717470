"""Writes Hugging Face checkpoints: safetensors files with an index, and config.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..checkpoint.formats.dtypes import PLAIN
from .conversion_source import ConversionSource
from .output_files import ConcatFile, TensorToWrite

MAX_SHARD_SIZE = 5_000_000_000
"""The default of transformers."""
STALE_HF_FILES = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
"""Files that would be taken for a part of a new checkpoint."""
_METADATA = {"format": "pt"}
_TORCH_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
"""`model_type` → the class in transformers."""


def safetensors_files(tensors: Sequence[TensorToWrite], max_shard_size: int) -> list[ConcatFile]:
    """Return one file, or shards with an index; a shard is larger than the maximum only if a single tensor is."""
    shards: list[list[TensorToWrite]] = [[]]
    size = 0
    for x in tensors:
        if shards[-1] and size + x.size > max_shard_size:
            shards.append([])
            size = 0
        shards[-1].append(x)
        size += x.size
    if len(shards) == 1:
        return [_safetensors_file("model.safetensors", shards[0])]
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    weight_map = {x.name: name for name, shard in zip(names, shards, strict=True) for x in shard}
    index = {"metadata": {"total_size": sum(x.size for x in tensors)}, "weight_map": dict(sorted(weight_map.items()))}
    files = [_safetensors_file(name, shard) for name, shard in zip(names, shards, strict=True)]
    return [*files, ConcatFile("model.safetensors.index.json", [(json.dumps(index, indent=2) + "\n").encode()])]


def config_json(source: ConversionSource, dtype: str, token_ids: Mapping[str, int]) -> dict[str, Any]:
    """Return the keys of config.json: those of the source's configuration, with the new dtype."""
    keys = dict(source.model.config.data)
    if "architectures" not in keys and (name := _CLASSES.get(str(keys.get("model_type")))):
        keys = {"architectures": [name], **keys, **{f"{word}_token_id": x for word, x in token_ids.items() if word in ("bos", "eos")}}
    key = next((x for x in ("dtype", "torch_dtype") if x in keys), "torch_dtype")
    return keys | {key: _TORCH_DTYPES[dtype]}


def _safetensors_file(name: str, tensors: Sequence[TensorToWrite]) -> ConcatFile:
    """Return one file; wider dtypes come first, so that each tensor is aligned."""
    ordered = sorted(tensors, key=lambda x: -PLAIN[x.dtype].bytes)
    header: dict[str, object] = {"__metadata__": _METADATA}
    at = 0
    for x in ordered:
        header[x.name] = {"dtype": x.dtype, "shape": list(x.shape), "data_offsets": [at, at + x.size]}
        at += x.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return ConcatFile(name, [len(text).to_bytes(8, "little"), text, *ordered])
