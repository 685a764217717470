"""A checkpoint on disk: one file of any format here, a set of shards with its index, or the folder that holds them.

An index is a stranger's word: its shard names are plain names beside it, checked as text before anything is opened, and a link may lead
only inside the model's folder or the cache of the hub that it lies in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import FormatError, safe
from ..strict import read_json
from . import gguf, pth, safetensors
from .manifest import Manifest, Tensor
from .source import LocalFile, Source

READERS = {"safetensors": safetensors.read, "gguf": gguf.read, "torch": pth.read}
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json", "diffusion_pytorch_model.safetensors.index.json")
SINGLES = ("model.safetensors", "pytorch_model.bin", "consolidated.safetensors")
ENDINGS = (".safetensors", ".gguf", ".pth", ".pt", ".bin", ".ckpt")
SHARDS = 100_000
"""An index names no more files than this."""


def read(path: str) -> Manifest:
    """What the checkpoint at this path contains."""
    if os.path.isdir(path):
        return read_folder(path)
    if path.endswith(".index.json"):
        return read_index(path)
    parts = split_parts(path)
    return read_files(parts) if len(parts) > 1 else read_file(path)


def read_file(path: str) -> Manifest:
    """One file, by what it begins with."""
    with LocalFile(path) as source:
        return READERS[kind(source)](source)


def kind(source: Source) -> str:
    """The format of a file: its first bytes decide, not its name."""
    start = source.read(0, min(9, source.size))
    if start[:4] in (b"GGUF", b"FUGG"):
        return "gguf"
    if start[:4] == b"PK\x03\x04" or start[:2] == b"\x80\x02":
        return "torch"
    if start[8:9] == b"{" or source.name.endswith(".safetensors"):
        return "safetensors"
    hint = "a Git LFS pointer: fetch the file itself" if start.startswith(b"version") else "known: safetensors, GGUF, torch's .pth and .bin"
    raise FormatError("unknown_format", f"{safe(source.name)} begins with {start[:8]!r}, as no checkpoint does", hint=hint)


def read_folder(folder: str) -> Manifest:
    """The checkpoint in a folder: by its index, by the usual single names, or whatever one set of files there is."""
    entries = sorted(os.listdir(folder))
    if index := next((x for x in (*INDEXES, *(y for y in entries if y.endswith(".index.json"))) if x in entries), None):
        return read_index(os.path.join(folder, index))
    if single := next((x for x in SINGLES if x in entries), None):
        return read_file(inside(folder, single))
    if meta := pth.siblings(entries):
        return read_files([inside(folder, x) for x in meta])
    found = [x for x in entries if x.endswith(ENDINGS)]
    if not found:
        raise FormatError("no_checkpoint", f"{safe(folder)} holds no checkpoint", hint=f"looked for {', '.join(ENDINGS)}")
    parts = split_parts(os.path.join(folder, found[0]))
    if len(found) not in (1, len(parts)):
        listed = ", ".join(safe(x, 60) for x in found[:4])
        raise FormatError("ambiguous", f"{safe(folder)} holds {len(found)} files without an index: {listed} …", hint="name one of them")
    return read_files([inside(folder, os.path.basename(x)) for x in parts])


def read_index(path: str) -> Manifest:
    """The shards that an index names; the index itself comes along for `verify`."""
    data = read_json(path)
    weight_map = data.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(x, str) for x in weight_map.values()):
        raise FormatError("index", f"{safe(path)}: weight_map should be an object of file names")
    shards = sorted(set(weight_map.values()))
    if len(shards) > SHARDS:
        raise FormatError("index", f"{safe(path)} names {len(shards):,} files; at most {SHARDS:,} are read")
    folder = os.path.dirname(path)
    present = [inside(folder, x) for x in shards if os.path.lexists(os.path.join(folder, plain(x)))]
    manifest = merged([read_file(x) for x in present]) if present else Manifest(format="safetensors", files=(), tensors=())
    missing = [x for x in shards if not os.path.lexists(os.path.join(folder, x))]
    return manifest.replace(index={"path": path, "weight_map": weight_map, "metadata": data.get("metadata", {}), "missing": missing})


def read_files(paths: Sequence[str]) -> Manifest:
    """Several files that are one checkpoint."""
    if paths[0].endswith(".gguf") and len(paths) > 1:
        sources = [LocalFile(x) for x in paths]
        try:
            return gguf.read_split(sources)
        finally:
            for source in sources:
                source.close()
    return merged([read_file(x) for x in paths])


def merged(manifests: Sequence[Manifest]) -> Manifest:
    """One manifest of several files; names that occur in more than one stay, for `verify` to find."""
    tensors: list[Tensor] = []
    for i, one in enumerate(manifests):
        tensors += one.tensors if i == 0 else [x._replace(file=i) for x in one.tensors]
    metadata: dict[str, Any] = {}
    for one in manifests:
        metadata |= one.metadata
    files = tuple(file for one in manifests for file in one.files)
    return Manifest(format=manifests[0].format, files=files, tensors=tuple(tensors), metadata=metadata)


def split_parts(path: str) -> list[str]:
    """The files of a split one, `NAME-00001-of-00003.gguf`; the path alone where it is whole or its siblings have an index."""
    found = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)", path)
    if found is None or not 0 < int(found[3]) <= SHARDS:
        return [path]
    return [f"{found[1]}-{i:05}-of-{found[3]}{found[4]}" for i in range(1, int(found[3]) + 1)]


def plain(name: str) -> str:
    """A shard's name, if it is one plain component of a path."""
    if not name or name in (".", "..") or len(name) > 255 or any(x in name for x in '/\\\0:') or any(ord(x) < 32 for x in name):
        raise FormatError("shard_name", f"the index names the file {safe(repr(name))}; only a plain name beside it is opened")
    return name


def inside(folder: str, name: str) -> str:
    """The path of a file in a folder, if no link leads out of the folder, or of the hub's cache that the folder lies in."""
    path = os.path.join(folder, plain(name))
    if os.path.islink(path):
        real, home = os.path.realpath(path), os.path.realpath(folder or ".")
        if os.path.basename(os.path.dirname(home)) == "snapshots":
            home = os.path.dirname(os.path.dirname(home))
        if os.path.commonpath((real, home)) != home:
            raise FormatError("link", f"{safe(path)} is a link that leads out of {safe(home)}")
    return path


def listed(names: Iterable[str], most: int = 4) -> str:
    """Some names, escaped, and how many more."""
    found = list(names)
    return ", ".join(safe(x, 80) for x in found[:most]) + (f" and {len(found) - most:,} more" if len(found) > most else "")
