"""`sound`: a checkpoint on disk that is what its configuration says, or the finding of `verify` that it is not, as an error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...analysis.verify.check_checkpoint import expectation_of
from ...analysis.verify.listing import find_packings
from ...analysis.verify.verify_tensors import Finding, verify_tensors
from ...checkpoint.formats.manifest import Manifest, Tensor
from ...checkpoint.meta_shards import infer_missing_config, merge_tensor, merged_vocab_size
from ...checkpoint.naming.scheme import Scheme
from ...checkpoint.open import OpenedCheckpoint, open_checkpoint
from ...checkpoint.quantization.packed_tensors import Packing
from ...checkpoint.tensor_reader import MergedTensor
from ...core.errors import LlamathError, safe
from ...core.record_type import Record
from ...embedded import named
from ...loading import load
from ...model import Model

NON_FATAL = frozenset(("dtype", "total_size", "index", "vocabulary"))
"""Findings of `verify` that do not keep the weights from being what they are."""
Tensors = Mapping[str, list[Tensor]]


class StoredTensors(NamedTuple):
    """What a checkpoint has: its tensors, those that are packed, and what their configuration says of them."""

    tensors: Mapping[str, MergedTensor]
    packings: Mapping[str, Packing] = {}
    scale_block: tuple[int, ...] = ()  # rows and columns that share a scale


class VerifiedCheckpoint(Record):
    """A checkpoint and the model that it holds."""

    path: str
    model: Model
    manifest: Manifest
    scheme: Scheme
    stored: StoredTensors
    folder: str  # where a tokenizer may lie; of a GGUF file, the file
    notes: tuple[str, ...]


def open_verified(path: str, changes: Mapping[str, Any] = {}) -> VerifiedCheckpoint:
    """The checkpoint in this folder or file."""
    path = named(path)
    if not os.path.lexists(path):
        hint = "fetch it first (hf download NAME --local-dir FOLDER), and name the folder"
        raise LlamathError(f"{safe(path)} is not on this machine, and its numbers are wanted", hint=hint)
    checkpoint = open_checkpoint(path)
    found, manifest = checkpoint.tensors_by_name, checkpoint.manifest
    folder = path if manifest.format == "gguf" else checkpoint.folder or "."
    notes: list[str] = []
    model = _model(folder, checkpoint, found, changes, notes)
    scheme, held = _stored_tensors(checkpoint, model, found, notes)
    return VerifiedCheckpoint(
        path=path, model=model, manifest=manifest, scheme=scheme, stored=held, folder=folder, notes=(*model.notes, *notes)
    )


def _model(folder: str, checkpoint: OpenedCheckpoint, found: Tensors, changes: Mapping[str, Any], notes: list[str]) -> Model:
    """What the configuration describes, or the header; of Meta's, what the tensors say besides."""
    if checkpoint.manifest.format == "gguf" or checkpoint.has_config_json:
        return load(folder, changes=changes, check_tensors=False)
    size = merged_vocab_size(found, "tok_embeddings.weight", "norm.weight")
    model = load(folder, changes=changes, vocab_size=size)
    scheme = model.family.meta
    if scheme is None or not model.config.source.endswith("params.json"):
        return model
    said = {key: x for key, x in infer_missing_config(model.config.data, scheme, found).items() if key not in changes}
    notes += [remark for _, remark in said.values()]
    return load(folder, changes={**changes, **{key: x for key, (x, _) in said.items()}}, vocab_size=size)


def _stored_tensors(checkpoint: OpenedCheckpoint, model: Model, found: Tensors, notes: list[str]) -> tuple[Scheme, StoredTensors]:
    """The naming that the tensors have, and the tensors, those of several files made whole."""
    manifest = checkpoint.manifest
    cut = manifest.format == "torch" and model.family.meta is not None and any(len(x) > 1 for x in found.values())
    meta = model.family.meta.tensors(model.tree) if cut and model.family.meta else ()
    shapes = {x.name: tuple(map(int, x.shape)) for x in meta}
    wholes = {name: merge_tensor(name, parts, shapes.get(name)) for name, parts in found.items()}
    if cut:
        manifest = manifest.replace(tensors=tuple(x.parts[0]._replace(shape=x.shape, strides=None) for x in wholes.values()))
    said = checkpoint.quantization_config or {}
    promise = expectation_of(model, checkpoint)
    verdict = verify_tensors(promise, manifest, quantization=said)
    _raise_findings(checkpoint.name, verdict.findings, notes)
    scheme = next(x for x in promise.schemes if x is not None and x.name == verdict.scheme)
    block = said.get("weight_block_size")
    block = tuple(block) if isinstance(block, list) and all(type(x) is int and x > 0 for x in block) else ()
    return scheme, StoredTensors(wholes, find_packings(manifest, said), block)


def _raise_findings(path: str, findings: Sequence[Finding], notes: list[str]) -> None:
    """Refuse what is not whole; note what is only worth knowing."""
    wrong = [x for x in findings if x.severity != "info" and x.code not in NON_FATAL]
    if wrong:
        first, more = wrong[0], f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise LlamathError(
            f"{safe(path)} is not what its configuration says: {first.message}{more}", hint=first.hint or "llamath verify says more"
        )
    notes += [x.message for x in findings if x.code in NON_FATAL]
