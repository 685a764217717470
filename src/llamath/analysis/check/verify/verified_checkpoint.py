"""`open_verified`: a checkpoint (downloaded if it is on the Hub) that matches its config; the
first fault is raised.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ....checkpoint.formats.manifest import Manifest
from ....checkpoint.meta_shards import infer_missing_config, merge_tensor, merged_vocab_size
from ....checkpoint.naming.detect_scheme import detect_scheme
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
    opened = open_checkpoint(path)
    check_expansion(opened.manifest)
    folder = path if opened.manifest.format == "gguf" else opened.folder or "."
    size = vocab_size(opened)

    def load(changes: Mapping[str, Any]) -> FamilyModel:
        return load_family(folder, changes=changes, vocab_size=size, check_tensors=False)

    contents = verify_contents(opened, load, changes, lambda x, _: x.code in _NON_FATAL)
    quantization = opened.quantization_config or {}
    manifest = contents.checkpoint.manifest
    return VerifiedCheckpoint(
        path=path,
        model=contents.model,
        manifest=manifest,
        scheme=contents.scheme,
        stored=StoredTensors(
            contents.tensors, packings_of(contents.merged, quantization), quantization
        ),
        folder=folder,
        notes=(
            *contents.model.notes,
            *contents.notes,
            *(x.message for x in contents.findings if x.code in _NON_FATAL),
        ),
        quantization=quantization,
    )


class VerifiedContents(NamedTuple):
    """A checkpoint that matches a model, and how: its tensors with those of several shards merged,
    and the findings that are none about its weights.
    """

    model: FamilyModel
    checkpoint: OpenedCheckpoint  # without what training added
    scheme: Scheme
    tensors: Mapping[str, MergedTensor]
    merged: Manifest  # of these tensors
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def vocab_size(opened: OpenedCheckpoint) -> int | None:
    """Return the vocabulary in Meta's files, whose params.json may lack it; None with other
    configs.
    """
    if not _has_params_json(opened):
        return None
    return merged_vocab_size(opened.tensors_by_name, "tok_embeddings.weight", "norm.weight")


def _has_params_json(opened: OpenedCheckpoint) -> bool:
    """Whether the config is Meta's, which leaves out what its tensors show."""
    return opened.manifest.format != "gguf" and not opened.has_config_json


def verify_contents(
    opened: OpenedCheckpoint,
    load: Callable[[Mapping[str, Any]], FamilyModel],
    changes: Mapping[str, Any],
    is_harmless: Callable[[Finding, FamilyModel], bool],
    kind: type[LlamathError] = LlamathError,
) -> VerifiedContents:
    """Verify a checkpoint against the model that is loaded with these changes; an error of this
    kind names the first finding that is not harmless.
    """
    model = load(changes)
    reject_shard(model, opened.name)
    checkpoint, added = without_training_names(opened, model.text)
    notes = [x.message for x in added]
    if _has_params_json(opened):
        schemes = expectation_of(model, checkpoint).schemes
        tensors = checkpoint.tensors_by_name
        scheme = detect_scheme(model.tree, schemes, dict.fromkeys(tensors, ())).scheme
        inferred = infer_missing_config(model.config.data, scheme, tensors)
        notes += [x.note for key, x in inferred.items() if key not in changes]
        model = load({**{key: x.value for key, x in inferred.items()}, **changes})
    model = (model if says_tied(changes) else with_stored_head(model, checkpoint)).text
    merged, manifest = _merge_shards(checkpoint, model)
    expectation = expectation_of(model, checkpoint)
    verdict = verify_tensors(
        expectation, manifest, quantization=checkpoint.quantization_config or {}
    )
    if not verdict.matched:
        renamed = [x.message for x in verdict.findings if x.code == "renamed"]
        why = f": {renamed[0]}" if renamed else ""
        raise kind(
            f"{safe(opened.name)} has no tensor of the {model.family.name} family{why}",
            hint=f"{Call('ls', opened.name)} lists its tensors",
        )
    reject_mismatch(opened.name, [x for x in verdict.findings if not is_harmless(x, model)], kind)
    scheme = next(x for x in expectation.schemes if x.name == verdict.scheme)
    if scheme.chunked:
        from ....checkpoint.naming.chunked_tensors import rejoin_chunks

        scheme, merged = rejoin_chunks(scheme, model.tree, merged)
    return VerifiedContents(
        model, checkpoint, scheme, merged, manifest, verdict.findings, tuple(notes)
    )


def _merge_shards(
    checkpoint: OpenedCheckpoint, model: FamilyModel
) -> tuple[dict[str, MergedTensor], Manifest]:
    """Return the tensors, those of several of Meta's shards merged, and their manifest."""
    manifest, meta = checkpoint.manifest, model.family.meta
    found = checkpoint.tensors_by_name
    is_sharded = manifest.format == "torch" and any(len(x) > 1 for x in found.values())
    if not is_sharded or meta is None:
        return {name: merge_tensor(name, parts, None) for name, parts in found.items()}, manifest
    shapes = {x.name: tuple(map(int, x.shape)) for x in meta.tensors(model.tree)}
    merged = {name: merge_tensor(name, parts, shapes.get(name)) for name, parts in found.items()}
    parts = (x.parts[0]._replace(shape=x.shape, strides=None) for x in merged.values())
    return merged, manifest.replace(tensors=tuple(parts))


def reject_mismatch(
    path: str, findings: Sequence[Finding], kind: type[LlamathError] = LlamathError
) -> None:
    """Raise an error about the first finding that is more than a remark."""
    if fatal := [x for x in findings if x.severity != "info"]:
        first, n = fatal[0], len(fatal) - 1
        more = f"; and {n} more finding{'s' if n > 1 else ''}" if n else ""
        raise kind(
            f"{safe(path)} does not match its config: {first.message}{more}",
            hint=first.hint or f"{Call('verify', path)} lists all findings",
        )
