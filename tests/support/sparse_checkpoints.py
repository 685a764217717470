"""Checkpoints that are headers alone: sparse files with the real names, types and shapes of any model."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

import llamath
from llamath.checkpoint.formats.dtypes import PLAIN, parse_dtype

Header = dict[str, tuple[str, tuple[int, ...]]]


def header_of(model: llamath.Model, scheme: str = "hf", dtype: str = "") -> Header:
    dtype = dtype or parse_dtype(str(model.config.data.get("torch_dtype") or "bfloat16")).name
    return {
        x.name: (dtype, tuple(map(int, x.shape))) for x in model.scheme(scheme).tensors(model.tree)
    }


def write_safetensors(
    path: Path, header: Mapping[str, tuple[str, tuple[int, ...]]], short: int = 0
) -> Path:
    entries, at = {}, 0
    for name, (dtype, shape) in header.items():
        size = prod(shape) // PLAIN[dtype].block * PLAIN[dtype].bytes
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at - short)
    return path


def write_sharded(folder: Path, header: Header, shards: int, total_size: int | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    names = list(header)
    size = -(-len(names) // shards)
    weight_map = {}
    for i in range(shards):
        part = names[i * size : (i + 1) * size]
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(folder / file, {name: header[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    total = sum(prod(shape) * PLAIN[dtype].bytes for dtype, shape in header.values())
    index = {
        "metadata": {"total_size": total if total_size is None else total_size},
        "weight_map": weight_map,
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_config(
    folder: Path, model: llamath.Model, drop: Iterable[str] = (), **changes: object
) -> Path:
    folder.mkdir(exist_ok=True)
    config = {**model.config.data, **changes}
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if key not in drop})
    )
    return folder
