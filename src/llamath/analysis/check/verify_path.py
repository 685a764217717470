"""`verify_path`: check whatever is at a path or address, by the kind of checkpoint that it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...checkpoint.folders.open_any import local_kind
from ...checkpoint.open import OpenedCheckpoint, find_repo, local_copy, open_checkpoint
from ...loading import Source, Via, load
from ...model import TensorModel
from ...utils.errors import (
    Argument,
    ConfigError,
    FormatError,
    LlamathError,
    RemoteError,
    safe,
)
from .kinds.files_check import config_of, is_unknown_family, verify_files
from .verify.check_checkpoint import VerifyReport, verify_opened
from .verify.structure_report import StructureReport

if TYPE_CHECKING:
    from ...checkpoint.adapters import Adapter
    from ...checkpoint.file_stream import Progress


def verify_path(
    path: str,
    model: Source | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    full: bool = False,
    all_sums: bool = False,
    progress: Progress | None = None,
    via: Via | None = None,
) -> VerifyReport | StructureReport:
    """Verify a checkpoint against a model or its own config, or an adapter against its base model.

    With `full`, the values of all tensors and the sums of the files are checked, for which a
    repository on the Hub is downloaded; with `all_sums`, the SHA-256 of each file is computed. With
    `via`, the model is built as `load` builds it.
    """
    if full:
        path = local_copy(path)
    if kind := local_kind(path):
        if model is not None or via is not None:
            names = f"{Argument('against')} and {Argument('via')}"
            raise LlamathError(
                f"{names} are for the checkpoint of one model, and {safe(path)} is another kind "
                f"({kind})"
            )
        structure = _verify_folder(kind, path)
        if not (full or all_sums):
            return structure
        from .kinds.folder_values import check_folder_values

        return structure.replace(
            full=check_folder_values(kind, path, values=full, all_sums=all_sums, progress=progress)
        )
    opened = open_checkpoint(path, allow_partial=True)
    if via is not None:
        model, changes = (
            load(model or opened.location, changes=changes, check_tensors=False, via=via),
            None,
        )
    report = _verify_headers(opened, path, model, changes, reads_values=full or all_sums)
    if not (full or all_sums):
        return report
    from .verify.full_check import check_files

    head = report.model.tree.head if isinstance(report, VerifyReport) else None
    found = check_files(
        opened,
        report.verdict.roles if isinstance(report, VerifyReport) else {},
        values=full,
        all_sums=all_sums,
        is_tied=head is not None and bool(head.weight.tied),
        hub_sums=_hub_sums(model) if isinstance(model, str) else None,
        progress=progress,
    )
    return report.replace(full=found)


def _find_adapter(opened: OpenedCheckpoint) -> Adapter | None:
    """Return the adapter in a checkpoint; one of several files is none."""
    if len(opened.manifest.files) != 1:
        return None
    from ...checkpoint.adapters import find_adapter

    return find_adapter(opened)


def _verify_headers(
    opened: OpenedCheckpoint,
    path: str,
    model: Source | None,
    changes: Mapping[str, Any] | None,
    *,
    reads_values: bool,
) -> VerifyReport | StructureReport:
    if (adapter := _find_adapter(opened)) is not None:
        from .kinds.adapter_check import verify_adapter

        return verify_adapter(adapter, path, model, changes).replace(note=opened.commit_note)
    if model is not None and _may_lack_family(model):
        model, changes = load(model, changes=changes, check_tensors=False), None
        if isinstance(model, TensorModel):
            from .state_dict_check import verify_state_dict

            return verify_state_dict(opened, path, model)
    if model is None and not changes:
        keys = config_of(opened)
        model_type = (keys or {}).get("model_type")
        if keys is not None and isinstance(model_type, str) and is_unknown_family(keys):
            reason = (
                f"{safe(model_type, 60)} is not among the decoder families that are counted "
                "by formula"
            )
            return verify_files(opened, path, keys, reason)
        if keys is None and reads_values and _lacks_config(opened):
            return verify_files(opened, path, {}, "there is no config.json or params.json")
    return verify_opened(opened, path, model, changes)


def _lacks_config(opened: OpenedCheckpoint) -> bool:
    """Whether there is no file with a config, rather than one that cannot be read."""
    try:
        return opened.config.keys is None and opened.manifest.format != "gguf"
    except (ConfigError, FormatError, RemoteError):
        return False


def _may_lack_family(model: Source) -> bool:
    """Whether a source may be a module, a state dict or a model that transformers builds."""
    return not isinstance(model, str | os.PathLike)


def _verify_folder(kind: str, path: str) -> StructureReport:
    """Verify a folder that is no single model's checkpoint."""
    if kind == "fsdp":
        from .kinds.dcp_check import verify_dcp as verify
    elif kind == "deepspeed":
        from .kinds.deepspeed_check import verify_deepspeed as verify
    else:
        from .kinds.diffusers_check import verify_diffusers as verify
    return verify(path)


def _hub_sums(model: str) -> Mapping[str, str] | None:
    """Return the sums of the files of the Hub repository that a checkpoint is compared with;
    None for other models.
    """
    from ...catalog import find_public_id
    from ...checkpoint.repo_id import is_offline

    if find_repo(model) is None or is_offline() or find_public_id(model) is not None:
        return None
    from ...checkpoint.hub import read_sums

    return read_sums(model)
