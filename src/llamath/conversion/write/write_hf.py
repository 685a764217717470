"""Writes Hugging Face checkpoints: safetensors files with an index, and config.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...checkpoint.formats.dtypes import PLAIN
from ...checkpoint.quantization import QUANTIZATION_KEYS
from ...core.expr import Expr
from ...families.deepseek_shared import MTP_KEYS
from ...families.multimodal_registry import find_wrapper
from ...families.registry import FAMILIES
from ...loading import load_family
from ...utils.errors import Argument, ConvertError, safe
from ..conversion_source import ConversionSource
from ..tensor_plan import TensorPlan
from .output_files import ConcatFile, TensorToWrite

MAX_SHARD_SIZE = 5_000_000_000
"""The default of transformers."""
STALE_HF_FILES = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
"""Files that would be taken for a part of a new checkpoint."""
_METADATA = {"format": "pt"}
_TORCH_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def safetensors_files(tensors: Sequence[TensorToWrite], max_shard_size: int) -> list[ConcatFile]:
    """Return one file, or shards with an index; a shard is larger than the maximum only if a
    single tensor is.
    """
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
    index = {
        "metadata": {"total_size": sum(x.size for x in tensors)},
        "weight_map": dict(sorted(weight_map.items())),
    }
    files = [_safetensors_file(name, shard) for name, shard in zip(names, shards, strict=True)]
    return [
        *files,
        ConcatFile("model.safetensors.index.json", [(json.dumps(index, indent=2) + "\n").encode()]),
    ]


def config_json(
    source: ConversionSource, plan: TensorPlan, token_ids: Mapping[str, int], *, with_mtp: bool
) -> dict[str, Any]:
    """Return the keys of config.json: those of the source's configuration, with what changes:
    class, dtype and quantization.
    """
    keys = _standalone_config(source)
    name = _causal_class(str(keys.get("model_type")))
    if name and ("architectures" not in keys or source.model.wrapper):
        keys = {
            "architectures": [name],
            **{key: x for key, x in keys.items() if key != "architectures"},
        }
        if not source.model.wrapper:
            keys |= {
                f"{word}_token_id": x for word, x in token_ids.items() if word in ("bos", "eos")
            }
    if not plan.keeps_packed:
        keys = {key: x for key, x in keys.items() if key not in QUANTIZATION_KEYS}
    elif source.model.wrapper:
        keys |= {
            key: _without_wrapper(keys[key], source) for key in QUANTIZATION_KEYS if key in keys
        }
    if source.mtp and not with_mtp:
        keys |= {key: 0 for key in MTP_KEYS if key in keys}
    key = next((x for x in ("dtype", "torch_dtype") if x in keys), "torch_dtype")
    return keys | {key: _TORCH_DTYPES[plan.float_dtype]}


def _causal_class(model_type: str) -> str:
    """Return the class of a model type's causal model in transformers; empty if it has none."""
    family = FAMILIES.find(model_type)
    return family.causal_class if family is not None and model_type == family.types[0] else ""


def _standalone_config(source: ConversionSource) -> dict[str, Any]:
    """Return the source's configuration; a type that exists only inside multimodal models
    becomes that of the same model by itself.
    """
    keys = dict(source.model.config.data)
    family = FAMILIES.find(str(keys.get("model_type")))
    if family is None or not family.standalone_type:
        return keys
    defaults = source.model.config.defaults_used  # of the two types, which may differ
    stated = {
        key: int(x) if isinstance(x, Expr) else x
        for key, x in defaults.items()
        if isinstance(x, (bool, int, float, str))
    }
    changed = stated | keys | {"model_type": family.standalone_type}
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(rope := keys.get(name), Mapping):
            kept = {
                key: x
                for key, x in rope.items()
                if key not in ("mrope_section", "mrope_interleaved")
            }
            kept |= {key: "default" for key in ("type", "rope_type") if kept.get(key) == "mrope"}
            changed[name] = kept
    return changed if load_family(changed).tree == source.model.tree else keys


def _without_wrapper(section: Any, source: ConversionSource) -> Any:
    """Return a quantization config with the names that modules have in the text model alone."""
    old, new = find_wrapper(source.model.wrapper).prefix[::-1]
    if not old:
        return section

    def renamed(x: Any) -> Any:
        if isinstance(x, str):
            if x.startswith("re:") and old.rstrip(".").rpartition(".")[2] in x:
                raise ConvertError(
                    f"the quantization config matches names inside {safe(source.model.wrapper)} "
                    f"by {safe(x, 80)}",
                    hint=f"give {Argument('dtype', 'bf16')} to dequantize the weights",
                )
            return new + x.removeprefix(old) if x.startswith(old) else x
        if isinstance(x, list):
            return [renamed(y) for y in x]
        return {renamed(key): renamed(y) for key, y in x.items()} if isinstance(x, dict) else x

    return renamed(section)


def _safetensors_file(name: str, tensors: Sequence[TensorToWrite]) -> ConcatFile:
    """Return one file; wider dtypes come first, so that each tensor is aligned."""
    ordered = sorted(tensors, key=lambda x: -PLAIN[x.dtype].bytes)
    header: dict[str, object] = {"__metadata__": _METADATA}
    at = 0
    for x in ordered:
        header[x.name] = {
            "dtype": x.dtype,
            "shape": list(x.shape),
            "data_offsets": [at, at + x.size],
        }
        at += x.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return ConcatFile(name, [len(text).to_bytes(8, "little"), text, *ordered])


def json_file(name: str, keys: Mapping[str, Any]) -> ConcatFile:
    """Return a file with one JSON object."""
    return ConcatFile(name, [json_bytes(keys)])


def json_bytes(keys: Mapping[str, Any]) -> bytes:
    """Return the content of a file with one JSON object."""
    return (json.dumps(keys, indent=2, ensure_ascii=False) + "\n").encode()
