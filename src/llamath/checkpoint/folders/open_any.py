"""`open_any`: open any kind of checkpoint for listing, also folders of training runs and of several
models, as one manifest.

Tensors of a distributed checkpoint are listed whole, with their global shapes, and those of
DeepSpeed by the shapes of the parameters; the files of such folders hold parts of them, so the
manifest has one entry for all files, and nothing is read from it. Tensors of a diffusers pipeline
begin with the name of their part.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from ...utils.errors import Call, FormatError, safe
from ...utils.number_format import format_count
from ..formats.checkpoint_files import merge
from ..formats.dtypes import PLAIN
from ..formats.folder import LocalFolder
from ..formats.folder_kind import METADATA_FILE, folder_kind
from ..formats.manifest import CheckpointFile, Manifest, Tensor, TensorTable
from ..open import OpenedCheckpoint, open_checkpoint


def open_any(path: str) -> tuple[OpenedCheckpoint, tuple[str, ...]]:
    """Open a checkpoint of any kind; returns it with notes on what it is."""
    kind = local_kind(path)
    if kind == "fsdp":
        manifest, notes = _distributed(path)
    elif kind == "deepspeed":
        manifest, notes = _deepspeed(path)
    elif kind == "diffusers":
        manifest, notes = _diffusers(path)
    else:
        return open_checkpoint(path), ()
    return OpenedCheckpoint(name=path, manifest=manifest), notes


def local_kind(path: str) -> str:
    """Return the kind of a local folder: fsdp, deepspeed or diffusers; an empty string for all
    else.
    """
    return folder_kind(LocalFolder(path).names()) if os.path.isdir(path) else ""


def _whole_tensors(
    kind: str,
    name: str,
    size: int,
    shapes: Iterable[tuple[str, str, tuple[int, ...]]],
    metadata: Mapping[str, str],
) -> Manifest:
    """Return a manifest of tensors that are spread over files, one after the other in one entry."""
    tensors, at = [], 0
    for tensor, dtype, shape in shapes:
        end = at + PLAIN[dtype].size(prod(shape))
        tensors.append(Tensor(tensor, dtype, shape, 0, at, end))
        at = end
    return Manifest(
        format=kind,
        files=(CheckpointFile(name, size, max(0, size - at)),),
        tensors=tuple(tensors),
        metadata=metadata,
    )


def _distributed(path: str) -> tuple[Manifest, tuple[str, ...]]:
    from .dcp import read_dcp

    found = read_dcp(LocalFolder(path))
    objects = {"objects": ", ".join(safe(x, 80) for x in found.objects)} if found.objects else {}
    shapes = ((x.name, x.dtype, x.shape) for x in found.tensors)
    size = found.metadata_bytes + sum(found.sizes.values())
    manifest = _whole_tensors("fsdp", os.path.join(path, METADATA_FILE), size, shapes, objects)
    chunks = format_count(sum(len(x.chunks) for x in found.tensors), "chunk")
    files = format_count(len(found.files), "file")
    note = (
        f"a distributed checkpoint (FSDP, torch.distributed.checkpoint) of {chunks} in "
        f"{files}; tensors are listed whole"
    )
    return manifest, (
        note,
        f"{Call('verify', path)} checks that the chunks cover each tensor",
    )


def _deepspeed(path: str) -> tuple[Manifest, tuple[str, ...]]:
    from .deepspeed import find_zero_files, read_model_states

    found = find_zero_files(path)
    if not found.models:
        raise FormatError(
            "deepspeed",
            f"{safe(path)}: expected model states, which name the parameters, found none",
        )
    states = read_model_states(found.folder, found.models[0])
    shapes = [
        (name, "F32", shape)
        for group in (*states.groups, states.frozen)
        for name, shape in group.items()
    ]
    files = [x.name for x in (*found.optimizers, *found.models)]
    size = sum(os.path.getsize(os.path.join(found.folder, x)) for x in files)
    manifest = _whole_tensors(
        "deepspeed", os.path.join(found.folder, files[0]), size, shapes, {"tag": found.tag}
    )
    note = (
        f"a DeepSpeed checkpoint of {format_count(len(files), 'file')}; the shapes of its "
        "parameters are listed, as float32 master weights"
    )
    return manifest, (note, f"{Call('verify', path)} checks the partitions")


def _diffusers(path: str) -> tuple[Manifest, tuple[str, ...]]:
    from .diffusers import read_pipeline, read_weights

    pipeline = read_pipeline(path)
    manifests: list[Manifest] = []
    notes = []
    for part in pipeline.parts:
        if not part.weights:
            continue
        manifests.append(_with_prefix(read_weights(part, part.weights[0]), part.name))
        notes += [
            f"{part.name}: {x.title} is left out; {part.weights[0].title} is listed"
            for x in part.weights[1:]
        ]
    if not manifests:
        raise FormatError(
            "no_checkpoint",
            f"{safe(path)}: a diffusers pipeline without weights",
            hint="download its parts, too",
        )
    merged = merge(manifests)
    note = (
        f"a diffusers pipeline ({safe(pipeline.class_name, 60)}) of "
        f"{format_count(len(manifests), 'part')} with weights"
    )
    return merged.replace(format="diffusers", metadata={}), (
        note,
        *notes,
        f"{Call('verify', path)} checks each part",
    )


def _with_prefix(manifest: Manifest, part: str) -> Manifest:
    columns = manifest.columns
    names: Sequence[str] = [f"{part}.{x}" for x in columns.name]
    return manifest.replace(tensors=TensorTable(columns._replace(name=names)), index=None)
