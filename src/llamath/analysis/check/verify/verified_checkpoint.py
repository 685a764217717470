"""`open_verified`: a checkpoint (downloaded if it is on the Hub) that matches its config; the
first fault is raised.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....checkpoint.formats.manifest import Manifest, Tensor
from ....checkpoint.meta_shards import infer_missing_config, merge_tensor, merged_vocab_size
from ....checkpoint.naming.scheme import Scheme
from ....checkpoint.open import OpenedCheckpoint, local_copy, open_checkpoint, packings_of
from ....checkpoint.quantization.packed_tensors import Packing
from ....checkpoint.tensor_reader import MergedTensor, check_expansion
from ....loading import load_family, says_tied, with_stored_head
from ....model import FamilyModel
from ....utils.errors import Call, LlamathError, safe
from ....utils.record_type import Record
from ...storage.shard_tree import reject_shard
from .check_checkpoint import expectation_of, without_training_names
from .verify_tensors import Finding, verify_tensors

_NON_FATAL = frozenset(("dtype", "total_size", "index", "missing_index", "vocabulary"))
"""Findings of `verify` that do not affect the weights; they become notes."""
Tensors = Mapping[str, list[Tensor]]


class StoredTensors(NamedTuple):
    """The stored tensors of a checkpoint, shards merged, and the quantized ones among them."""

    tensors: Mapping[str, MergedTensor]
    packings: Mapping[str, Packing] = {}
    quantization: Mapping[str, Any] = {}  # the config's section on packed weights


class VerifiedCheckpoint(Record):
    """A checkpoint whose tensors match its model."""

    path: str
    model: FamilyModel
    manifest: Manifest
    scheme: Scheme
    stored: StoredTensors
    folder: str  # of the tokenizer files; for a GGUF file, the file
    notes: tuple[str, ...]
    quantization: Mapping[str, Any] = {}  # the config's section on packed weights


def open_verified(path: str, changes: Mapping[str, Any] = {}) -> VerifiedCheckpoint:
    """Open the checkpoint in this folder, file or repository on the Hub and verify it."""
    path = local_copy(path)
    if not os.path.lexists(path):
        hint = "give a folder, a file, or a repository on the Hub (owner/name)"
        raise LlamathError(
            f"{safe(path)} is not a local path, and the weights are needed", hint=hint
        )
    checkpoint = open_checkpoint(path)
    check_expansion(checkpoint.manifest)
    tensors, manifest = checkpoint.tensors_by_name, checkpoint.manifest
    folder = path if manifest.format == "gguf" else checkpoint.folder or "."
    notes: list[str] = []
    model = _model(folder, checkpoint, tensors, changes, notes)
    reject_shard(model, path)
    checkpoint, added = without_training_names(checkpoint, model.text)
    notes += [x.message for x in added]
    model = (model if says_tied(changes) else with_stored_head(model, checkpoint)).text
    tensors, manifest = checkpoint.tensors_by_name, checkpoint.manifest
    scheme, stored = _stored_tensors(checkpoint, model, tensors, notes)
    return VerifiedCheckpoint(
        path=path,
        model=model,
        manifest=manifest,
        scheme=scheme,
        stored=stored,
        folder=folder,
        notes=(*model.notes, *notes),
        quantization=checkpoint.quantization_config or {},
    )


def _model(
    folder: str,
    checkpoint: OpenedCheckpoint,
    found: Tensors,
    changes: Mapping[str, Any],
    notes: list[str],
) -> FamilyModel:
    """Return the model that the config or GGUF header describes; keys that Meta's params.json
    lacks are inferred from the tensors.
    """
    if checkpoint.manifest.format == "gguf" or checkpoint.has_config_json:
        return load_family(folder, changes=changes, check_tensors=False)
    size = merged_vocab_size(found, "tok_embeddings.weight", "norm.weight")
    model = load_family(folder, changes=changes, vocab_size=size, check_tensors=False)
    scheme = model.family.meta
    if scheme is None or not model.config.source.endswith("params.json"):
        return model
    inferred = {
        key: x
        for key, x in infer_missing_config(model.config.data, scheme, found).items()
        if key not in changes
    }
    notes += [remark for _, remark in inferred.values()]
    return load_family(
        folder,
        changes={**changes, **{key: x for key, (x, _) in inferred.items()}},
        vocab_size=size,
        check_tensors=False,
    )


def _stored_tensors(
    checkpoint: OpenedCheckpoint, model: FamilyModel, found: Tensors, notes: list[str]
) -> tuple[Scheme, StoredTensors]:
    """Verify the tensors; return their naming scheme and the tensors, those of several shards
    merged.
    """
    manifest = checkpoint.manifest
    is_sharded = (
        manifest.format == "torch"
        and model.family.meta is not None
        and any(len(x) > 1 for x in found.values())
    )
    meta = model.family.meta.tensors(model.tree) if is_sharded and model.family.meta else ()
    shapes = {x.name: tuple(map(int, x.shape)) for x in meta}
    merged = {name: merge_tensor(name, parts, shapes.get(name)) for name, parts in found.items()}
    if is_sharded:
        manifest = manifest.replace(
            tensors=tuple(x.parts[0]._replace(shape=x.shape, strides=None) for x in merged.values())
        )
    quantization = checkpoint.quantization_config or {}
    expectation = expectation_of(model, checkpoint)
    verdict = verify_tensors(expectation, manifest, quantization=quantization)
    _raise_findings(checkpoint.name, verdict.findings, notes)
    scheme = next(x for x in expectation.schemes if x is not None and x.name == verdict.scheme)
    if scheme.chunked:
        from ....checkpoint.naming.chunked_tensors import rejoin_chunks

        scheme, merged = rejoin_chunks(scheme, model.tree, merged)
    return scheme, StoredTensors(merged, packings_of(manifest, quantization), quantization)


def _raise_findings(path: str, findings: Sequence[Finding], notes: list[str]) -> None:
    """Raise an error for the first fatal finding; add the others to the notes."""
    fatal = [x for x in findings if x.severity != "info" and x.code not in _NON_FATAL]
    if fatal:
        first, more = fatal[0], f"; and {len(fatal) - 1} more" if len(fatal) > 1 else ""
        raise LlamathError(
            f"{safe(path)} does not match its config: {first.message}{more}",
            hint=first.hint or f"{Call('verify', path)} lists all findings",
        )
    notes += [x.message for x in findings if x.code in _NON_FATAL]
