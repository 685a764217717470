"""Safetensors files as Hugging Face's hub has them: one, or shards with an index."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .float_cast import FLOAT_BYTES
from .target_files import ConcatFile
from .tensor_plan import OutputTensor

METADATA = {"format": "pt"}


def safetensors_files(entries: Sequence[OutputTensor], limit: int) -> list[ConcatFile]:
    """The files that hold these tensors, in order, none larger than the limit if no tensor is."""
    groups: list[list[OutputTensor]] = [[]]
    size = 0
    for x in entries:
        if groups[-1] and size + x.bytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(x)
        size += x.bytes
    if len(groups) == 1:
        return [_file("model.safetensors", groups[0])]
    names = [f"model-{i + 1:05}-of-{len(groups):05}.safetensors" for i in range(len(groups))]
    where = {x.name: name for name, group in zip(names, groups, strict=True) for x in group}
    index = {"metadata": {"total_size": sum(x.bytes for x in entries)}, "weight_map": dict(sorted(where.items()))}
    files = [_file(name, group) for name, group in zip(names, groups, strict=True)]
    return [*files, ConcatFile("model.safetensors.index.json", [(json.dumps(index, indent=2) + "\n").encode()])]


def _file(name: str, entries: Sequence[OutputTensor]) -> ConcatFile:
    """One file; wider numbers come first, so that each tensor begins at a multiple of its numbers' size."""
    ordered = sorted(entries, key=lambda x: -FLOAT_BYTES[x.dtype])
    header: dict[str, object] = {"__metadata__": METADATA}
    at = 0
    for x in ordered:
        header[x.name] = {"dtype": x.dtype, "shape": list(x.shape), "data_offsets": [at, at + x.bytes]}
        at += x.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return ConcatFile(name, [len(text).to_bytes(8, "little"), text, *ordered])
