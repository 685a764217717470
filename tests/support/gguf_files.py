"""GGUF files written by the gguf package: complete files of zeros, or sparse files with nothing but a header."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from llamath.model import Model
from support.reference_data import TINY

Shapes = Mapping[str, Sequence[int]]
CONVERTED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "converted.json").read_text()
)
"""Output of llama.cpp's converter of August 2026 for the tiny configs: for each the configuration, the metadata of its architecture, the
tensors' shapes by block, and the values of rotary factors. tools/regenerate_converted.py writes the file."""


def load_tiny_configs() -> dict[str, dict[str, Any]]:
    """Return every tiny config by its label."""
    paths = [*sorted(TINY.glob("*.json")), *sorted(TINY.with_name("tiny_unproven").glob("*.json"))]
    return {
        f"{path.stem}-{label}": config
        for path in paths
        for label, config in json.loads(path.read_text()).items()
    }


def tensor_shapes(entry: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the tensors of a converted entry."""
    blocks = {
        f"blk.{i}.{name}": shape
        for numbers, block in entry["blocks"]
        for i in numbers
        for name, shape in block.items()
    }
    return entry["outside"] | blocks


def write_gguf(
    path: Path,
    arch: str,
    keys: Mapping[str, Any],
    tensors: Shapes,
    tokens: int = 0,
    values: Mapping[str, Sequence[float]] | None = None,
) -> Path:
    """Write a file of zeros, except for `values`; keys get the prefix of the architecture unless they begin with `general.`."""
    writer = open_gguf_writer(path, arch, keys, tokens)
    for name, shape in tensors.items():
        writer.add_tensor(
            name, np.array((values or {}).get(name, 0.0), np.float32) * np.ones(shape, np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_gguf_header(
    path: Path, arch: str, keys: Mapping[str, Any], tensors: Shapes, tokens: int = 0
) -> Path:
    """Write the header of a file of 16-bit tensors, and a hole of the size of their data."""
    writer = open_gguf_writer(path, arch, keys, tokens)
    sizes = {name: 2 * int(np.prod([int(x) for x in shape])) for name, shape in tensors.items()}
    for name, shape in tensors.items():
        writer.add_tensor_info(name, [int(x) for x in shape], np.dtype(np.float16), sizes[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    end = path.stat().st_size + 31
    with path.open("r+b") as file:
        file.truncate(end - end % 32 + sum(size + -size % 32 for size in sizes.values()))
    return path


def gguf_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors by their names in GGUF."""
    return {x.name: tuple(map(int, x.shape)) for x in model.scheme("gguf").tensors(model.tree)}


def open_gguf_writer(
    path: Path, arch: str, keys: Mapping[str, Any], tokens: int
) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, arch)
    adders = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in keys.items():
        adders[type(value)](key if key.startswith("general.") else f"{arch}.{key}", value)
    if tokens:
        writer.add_token_list([f"t{i}" for i in range(tokens)])
    return writer
