"""`check_folder_values`: read every byte of a folder of a training run, or of each part of a
diffusers pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....checkpoint.file_sums import read_sums_file, visible_files
from ....checkpoint.folders.stored_parts import StoredParts
from ....checkpoint.formats.manifest import Manifest
from ....checkpoint.open import OpenedCheckpoint
from ....utils.errors import FormatError, LlamathError, safe
from ..verify.full_check import FullCheck, check_files
from ..verify.verify_tensors import Finding, summarize_names

if TYPE_CHECKING:
    from ....checkpoint.file_stream import Progress
    from ....checkpoint.folders.diffusers import PipelinePart

_EMBEDDINGS = (
    *(
        "embed_tokens.weight",
        "tok_embeddings.weight",
        "word_embeddings.weight",
        "wte.weight",
        "embed_in.weight",
        "shared.weight",
    ),
    *(
        "token_embedding.weight",
        "position_embedding.weight",
        "lm_head.weight",
        "output.weight",
        "embed_out.weight",
    ),
)
"""Ends of the names of matrices whose rows belong to tokens or positions."""

_NO_WEIGHTS = Manifest(format="diffusers", files=(), tensors=())


def check_folder_values(
    kind: str, path: str, *, values: bool, all_sums: bool, progress: Progress | None = None
) -> FullCheck:
    """Read the files of an `fsdp`, `deepspeed` or `diffusers` folder: the statistics of all
    `values`, and the sums of the files.
    """
    if kind == "diffusers":
        return _check_pipeline(path, values=values, all_sums=all_sums, progress=progress)
    from ....checkpoint.folders.dcp_parts import dcp_parts
    from ....checkpoint.folders.deepspeed_parts import deepspeed_parts

    parts: StoredParts = dcp_parts(path) if kind == "fsdp" else deepspeed_parts(path)
    if not parts.manifest.files:
        raise FormatError(
            "unreadable",
            f"{safe(path)}: expected files to read in full, found none that can be read",
        )
    folder = OpenedCheckpoint(
        name=os.path.dirname(parts.manifest.files[0].name), manifest=parts.manifest
    )
    found = check_files(
        folder, _roles(parts.bases), values=values, all_sums=all_sums, progress=progress
    )
    if values and parts.unread:
        message = (
            f"the values of {summarize_names(parts.unread)} were not examined: they are "
            "compressed, damaged or missing"
        )
        found = found.replace(
            findings=(
                *found.findings,
                Finding(code="not_examined", severity="warning", message=message),
            )
        )
    return found


def _roles(bases: Mapping[str, str]) -> dict[str, str]:
    """Return the roles of parts of tensors, as far as their names say."""
    roles = {}
    for name, base in bases.items():
        if not base:
            roles[name] = "state"
        elif base.endswith(_EMBEDDINGS):
            roles[name] = "lookup"
    return roles


def _check_pipeline(
    path: str, *, values: bool, all_sums: bool, progress: Progress | None
) -> FullCheck:
    """Read each part's files, also those of other precisions; names begin with that of the part."""
    from ....checkpoint.folders.diffusers import read_pipeline

    pipeline = read_pipeline(path)
    listed = {} if all_sums else read_sums_file(path)
    findings: list[Finding] = []
    sets: list[tuple[str, str, Manifest, frozenset[str]]] = [("", path, _NO_WEIGHTS, frozenset())]
    for part in pipeline.parts:
        if part.exists:
            own, unread = _sets_of_part(part)
            findings += unread
            sets += [(f"{part.name}/", part.folder, *x) for x in own]
    total, done = sum(x.size for _, _, manifest, _ in sets for x in manifest.files), 0
    results: list[FullCheck] = []
    for prefix, folder, manifest, skip in sets:
        sums = {
            x.removeprefix(prefix): y
            for x, y in listed.items()
            if x.startswith(prefix) and "/" not in x.removeprefix(prefix)
        }
        found = check_files(
            OpenedCheckpoint(name=folder, manifest=manifest),
            _roles({x: x for x in manifest.columns.name}),
            values=values,
            all_sums=all_sums,
            listed_sums={x: y for x, y in sums.items() if x not in skip},
            skip=skip,
            progress=_from(progress, done, total),
        )
        done += sum(x.size for x in manifest.files)
        where = f"{safe(prefix[:-1], 60)}: " if prefix else ""
        findings += [x.replace(message=f"{where}{x.message}") for x in found.findings]
        results.append(
            found.replace(files=tuple(x.replace(name=prefix + x.name) for x in found.files))
        )
    folders = {prefix for prefix, *_ in sets}
    if elsewhere := [x for x in listed if x[: x.rfind("/") + 1] not in folders]:
        message = (
            f"the sums of files in other folders were not compared: {summarize_names(elsewhere)}"
        )
        findings.append(Finding(code="not_examined", severity="info", message=message))
    return FullCheck(
        bytes_read=sum(x.bytes_read for x in results),
        tensors=sum(x.tensors for x in results),
        values_checked=values,
        folder=path,
        files=tuple(y for x in results for y in x.files),
        findings=tuple(findings),
    )


def _sets_of_part(
    part: PipelinePart,
) -> tuple[list[tuple[Manifest, frozenset[str]]], list[Finding]]:
    """Return the manifests of a part's sets of files, each with the files that it leaves to the
    others, and what cannot be read.
    """
    from ....checkpoint.folders.diffusers import read_weights

    manifests: list[Manifest] = []
    findings: list[Finding] = []
    for weights in part.weights:
        try:
            manifests.append(read_weights(part, weights, []))
        except LlamathError as error:
            message = (
                f"{safe(part.name, 60)}: the values of {weights.title} were not examined: {error}"
            )
            findings.append(Finding(code="not_examined", severity="warning", message=message))
    manifests = manifests or [_NO_WEIGHTS]
    names = [frozenset(os.path.basename(x.name) for x in manifest.files) for manifest in manifests]
    all_names = frozenset[str]().union(*names)
    rest = all_names | set(visible_files(part.folder))  # read with the first set
    skips = [(rest if i else all_names) - own for i, own in enumerate(names)]
    return list(zip(manifests, skips, strict=True)), findings


def _from(progress: Progress | None, done: int, total: int) -> Progress | None:
    """Return the progress of one of several readings."""
    return None if progress is None else lambda n, _: progress(min(done + n, total), total)
