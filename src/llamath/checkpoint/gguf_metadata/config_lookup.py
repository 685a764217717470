"""Which configuration goes with a checkpoint: a GGUF file's own metadata, or the config.json or params.json that lies beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ...core.errors import safe
from ...core.record_type import Record
from ...core.strict_json import find_config, read_json
from ..formats import checkpoint_files as checkpoint
from ..formats.folder import LocalFolder
from ..formats.manifest import Manifest, Tensor
from ..formats.source import LocalFile
from .gguf_to_config import from_gguf

ROTARY = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
STUB = 2
"""A config.json of so few keys (its model_type, say) tells nothing: folders of GGUF files have such ones."""


class Beside(Record):
    """What was found: the keys, where, and of a GGUF file its header too."""

    keys: Mapping[str, Any] | None
    source: str
    manifest: Manifest | None = None
    notes: tuple[str, ...] = ()
    tensors: bool = True  # whether there is a checkpoint at all


def config_beside(path: str) -> tuple[dict[str, Any] | None, str]:
    """The configuration of the checkpoint at this path and where it is written; None if it is nowhere."""
    found = beside(path)
    return None if found.keys is None else dict(found.keys), found.source


def beside(path: str, problems: checkpoint.Problems = None) -> Beside:
    """The same with what else is known; in a folder a configuration of its own comes before that of a GGUF file in it.

    Given `problems`, a GGUF file that is too short is listed there, and believed all the same.
    """
    if os.path.isdir(path):
        return _folder(path, problems)
    known = path.endswith((*checkpoint.ENDINGS, ".index.json"))
    if path.endswith(".gguf") or (not (known or path.endswith(".json")) and _is_gguf(path)):
        return gguf(checkpoint.read(path, problems), safe(path))
    if not known:
        return Beside(keys=read_json(path), source=safe(path))
    keys, place = find_config(os.path.dirname(path))
    return Beside(keys=keys, source=safe(place or path))


def gguf(manifest: Manifest, source: str) -> Beside:
    """What a GGUF header says of itself; of files on disk, small tensors of rotary factors are read too."""
    notes: list[str] = []
    paths = [x.name for x in manifest.files]

    def read(tensor: Tensor) -> bytes:
        with LocalFile(paths[tensor.file]) as file:
            return file.read(tensor.start, tensor.bytes)

    here = all(map(os.path.isfile, paths)) and all(x.end <= manifest.files[x.file].size for x in manifest.tensors if x.name in ROTARY)
    keys = from_gguf(manifest.metadata, manifest.tensors, source, notes, read if here else None)
    return Beside(keys=keys, source=source, manifest=manifest, notes=tuple(notes))


def aside(name: str, layers: int) -> bool:
    """Whether a tensor of a GGUF file is no weight of a model with so many layers: factors, scales, layers that predict further tokens."""
    block = re.match(r"blk\.([0-9]{1,9})\.(.*)", name, re.DOTALL)
    own = block[2] if block else name
    return (
        own in ROTARY or own.endswith((".scale", ".input_scale")) or bool(block and (int(block[1]) >= layers or own.startswith("nextn.")))
    )


def _folder(path: str, problems: checkpoint.Problems) -> Beside:
    keys, place = find_config(path)
    files = LocalFolder(path).names()
    if (
        any(x.endswith(".gguf") for x in files)
        and (keys is None or len(keys) <= STUB)
        and (manifest := checkpoint.read(path, problems)).format == "gguf"
    ):
        return gguf(manifest, safe(manifest.files[0].name))
    return Beside(keys=keys, source=safe(place or path), tensors=any(x.endswith(checkpoint.ENDINGS) for x in files))


def _is_gguf(path: str) -> bool:
    """Whether a file without a telling name begins as a GGUF does: so do the blobs of some programs' stores."""
    with LocalFile(path) as file:
        return file.read(0, min(4, file.size)) == b"GGUF"
