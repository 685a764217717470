"""`EditSource`: a safetensors checkpoint that matches its config.json, as it is stored or edited.

An edited checkpoint is a source like any other: it has a config, a manifest and a reader, which
makes its tensors from those of the checkpoint before when they are read. So edits follow one
another, and what they lead to is written as it is, or converted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...analysis.check.verify.check_checkpoint import VerifyReport, verify_opened
from ...analysis.check.verify.verified_checkpoint import reject_mismatch
from ...analysis.storage.listed_weights import check_listable
from ...checkpoint.formats.folder import resolve_inside
from ...checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from ...checkpoint.naming.detect_scheme import detect_scheme
from ...checkpoint.naming.scheme import Scheme, StoredTensor, fused_scheme
from ...checkpoint.open import OpenedCheckpoint, local_copy, open_checkpoint, packings_of
from ...checkpoint.quantization.packed_tensors import Packing
from ...checkpoint.quantization_section import RECIPE_FILES, quantization_section, with_recipe_file
from ...checkpoint.tensor_reader import TensorReader
from ...core.blocks import Decoder
from ...families.model_class import headless_scheme
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import Call, ConvertError, FormatError, Name, safe
from ...utils.strict_json import parse_json, read_json
from ..copy_tokenizer import read_tokenizer_file
from ..source_files import SourceFiles, take_stamps
from .edited_tensor import EditedFile, EditedReader, EditedTensor

KEPT_FINDINGS = frozenset({"dtype", "total_size", "index"})
"""Codes of findings of `verify` that an edit neither makes nor has to repair; indexes are
written anew."""


class EditSource(SourceFiles):
    """A checkpoint to edit."""

    model: FamilyModel
    config: Mapping[str, Any]  # config.json as it is stored
    scheme: Scheme
    tensors: Mapping[str, Tensor]
    packings: Mapping[str, Packing]
    report: VerifyReport
    recipes: Mapping[str, bytes]  # the files next to config.json that have a recipe, by name

    @property
    def has_tied_copy(self) -> bool:
        """Whether the head is stored though it is tied to the embedding."""
        return self._tied_name in self.tensors

    @property
    def _tied_name(self) -> str:
        head = self.model.tree.head
        return (
            self.scheme.stored_name("head.weight") if head is not None and head.weight.tied else ""
        )

    def expected(self, tree: Decoder) -> dict[str, StoredTensor]:
        """Return the tensors that a tree has in a file, by name; with those of multi-token
        prediction and a stored copy of the head.
        """
        found = {x.name: x for x in (*self.scheme.tensors(tree), *self.scheme.mtp_tensors(tree))}
        if self.has_tied_copy and tree.head is not None:
            head = tree.replace(head=tree.head.replace(weight=tree.head.weight.replace(tied="")))
            found |= {x.name: x for x in self.scheme.tensors_of_field(head, "head")}
        return found


def _convert_hint(path: str) -> str:
    return f"convert it first: {Call('convert', path, Name('target'), names='hf')}"


def open_edit_source(path: str) -> EditSource:
    """Open the checkpoint in this folder if it is complete, matches its config.json, and its
    tensors can be copied.
    """
    path = local_copy(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    before = take_stamps(path, folder)
    opened = open_checkpoint(path, allow_partial=True, local_only=True)
    kind = opened.manifest.format
    if kind == "gguf" or not opened.has_config_json:
        what = "a GGUF file" if kind == "gguf" else "a checkpoint without config.json"
        raise ConvertError(
            f"{safe(path)}: expected a Hugging Face checkpoint with config.json, found {what}",
            hint=_convert_hint(path),
        )
    report = verify_opened(opened, path)
    model = report.model.text
    reject_mismatch(path, [x for x in report.findings if x.code not in KEPT_FINDINGS], ConvertError)
    check_listable(model.tree)
    manifest = report.checkpoint.manifest  # without the state of an optimizer
    tensors = {x.name: x for x in manifest.tensors}
    if len(tensors) < len(manifest.tensors):
        raise FormatError("duplicate", f"{safe(path)}: tensors are stored in more than one file")
    read = {x.path for x in take_stamps(path, folder, opened.manifest)}
    packings = packings_of(manifest, opened.packing_config)
    return EditSource(
        path=path,
        folder=folder,
        manifest=opened.manifest,
        reader=TensorReader(opened.manifest),
        stamps=tuple(x for x in before if x.path in read),
        model=model,
        config=read_json(resolve_inside(folder, "config.json")),
        scheme=find_scheme(model, tensors, packings, path),
        tensors=tensors,
        packings=packings,
        report=report,
        recipes=_read_recipes(folder),
    )


def _read_recipes(folder: str) -> dict[str, bytes]:
    return {
        name: read_tokenizer_file(resolve_inside(folder, name))
        for name in RECIPE_FILES
        if os.path.isfile(os.path.join(folder, name))
    }


class EditedCheckpoint(OpenedCheckpoint):
    """A checkpoint that is made from another one when it is read."""

    keys: Mapping[str, Any]  # of its config, with the recipe

    @property
    def has_local_values(self) -> bool:
        return False  # not in a file

    @property
    def quantization_config(self) -> Mapping[str, Any] | None:
        """The section of the config about the quantization of weights."""
        return quantization_section(self.keys)


def edited_source(
    source: SourceFiles,
    name: str,
    tensors: Sequence[EditedTensor],
    config: Mapping[str, Any],
    recipes: Mapping[str, bytes],
    known: Collection[str] = (),
) -> EditSource:
    """Return the checkpoint with these tensors, made from those of the source, if it matches its
    config; `known` are the codes of findings that the source has, too.
    """
    stored: list[Tensor] = []
    for x in tensors:
        start = stored[-1].end if stored else 0
        stored.append(Tensor(x.name, x.dtype, x.shape, 0, start, start + x.size))
    file = EditedFile(os.path.join(source.folder, "model.safetensors"), tensors, source.reader)
    manifest = Manifest(
        format="safetensors", files=(CheckpointFile(file.name, file.size),), tensors=tuple(stored)
    )
    keys = with_recipe_file(
        config, lambda file: parse_json(recipes[file], file) if file in recipes else None
    )
    checkpoint = EditedCheckpoint(name=source.folder, manifest=manifest, keys=keys)
    report = verify_opened(checkpoint, source.folder, load_family(keys), own_config=True)
    for finding in report.findings:
        is_kept = finding.code in KEPT_FINDINGS and finding.code in known
        if finding.severity != "info" and not is_kept:
            raise ConvertError(
                f"the edited checkpoint would not match its config: {finding.message}",
                hint=finding.hint,
            )
    digest = hashlib.sha256(source.changes_digest.encode())
    for x in tensors:
        digest.update(x.identity())
    by_name = {x.name: x for x in stored}
    model = report.model.text.replace(name=name, source=safe(source.path))
    packings = packings_of(manifest, checkpoint.packing_config)
    return EditSource(
        path=source.path,
        folder=source.folder,
        manifest=source.manifest,
        reader=EditedReader(manifest, file),
        stamps=source.stamps,
        origins=source.origins or (source,),
        changes_digest=digest.hexdigest(),
        model=model,
        config=config,
        scheme=find_scheme(model, by_name, packings, source.path),
        tensors=by_name,
        packings=packings,
        report=report,
        recipes=recipes,
    )


def find_scheme(
    model: FamilyModel, tensors: Mapping[str, Tensor], packings: Mapping[str, Packing], path: str
) -> Scheme:
    """Return the Hugging Face scheme of the tensors' names."""
    hf = model.family.hf
    schemes = [
        x
        for x in (hf, *model.family.hf_forms, headless_scheme(hf), fused_scheme(hf))
        if x is not None
    ]
    names = dict.fromkeys((*tensors, *(x.weight for x in packings.values())), ())
    match = detect_scheme(model.tree, schemes, names)
    if match.overlap < len(match.names):
        missing = next(
            x for x, shape in zip(match.names, match.found, strict=True) if shape is None
        )
        raise ConvertError(
            f"{safe(path)}: expected the tensor names of transformers, and {safe(missing)} is "
            "missing",
            hint=_convert_hint(path),
        )
    if match.scheme.chunked:
        raise ConvertError(
            f"{safe(path)}: expected one weight in a tensor, found "
            f"{safe(match.scheme.chunked[0])} and others in chunks of several",
            hint=_convert_hint(path),
        )
    return match.scheme
