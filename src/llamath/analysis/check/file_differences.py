"""`file_differences`: how the files of a model's checkpoint differ from its config, for commands
that answer from one of the two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ...checkpoint.adapters import find_adapter
from ...checkpoint.formats.choose_files import EXTENSIONS
from ...checkpoint.open import (
    MAX_REMOTE_FILES,
    OpenedCheckpoint,
    cached_copy,
    is_remote_name,
    is_url,
    names_checkpoint,
    open_checkpoint,
)
from ...loading import STORED_INSTEAD
from ...model import Model, TensorModel
from ...utils.errors import Call, FormatError, LlamathError, RemoteError, safe
from ...utils.number_format import format_count
from ...utils.record_type import Record
from .verify.check_checkpoint import verify_opened
from .verify.verify_tensors import Finding

_MAX_NOTES = 3
"""The most findings that are noted; `verify` lists all."""
_IN_FILE_NOTES = frozenset(("missing_shard", "missing_index", "single_shard", "files"))
"""Codes of findings that `file_notes` says, too."""
_TOLD = frozenset(("training_state", "other_part", "recipe", "not_compared"))
"""Codes of remarks about tensors that a model's own count leaves out, and about what is not
understood or was not read."""
_ABOUT_SIZES = frozenset(
    (
        "layers",
        "shape",
        "shard",
        "missing",
        "missing_shard",
        "single_shard",
        "unexpected",
        "other_part",
        "duplicate",
        "overlap",
    )
)
"""Codes of findings with which the files hold other parameters than the config describes."""


_MAX_COMPARED_FILES = 32
"""The most files whose headers are requested to compare them with a config, of which a number is
wanted, not a verdict."""
_NO_FILES = frozenset(("missing", "listing"))
"""Codes of the errors of repositories without weights, and of folders on web servers, which
cannot be listed."""


class FileDifferences(Record):
    """The differences between the files of a checkpoint and its config."""

    opened: OpenedCheckpoint
    notes: tuple[str, ...] = ()
    is_folder: bool = False  # whether a folder was named, local or remote
    # whether the files hold the parameters that the config describes, and no others
    same_parameters: bool = True


class _Check(NamedTuple):
    findings: Sequence[Finding]
    error: str = ""


def file_differences(model: Model, opened: OpenedCheckpoint) -> FileDifferences:
    """Compare a checkpoint whose headers have been read with the config that a model was loaded
    from, as `verify` does.
    """
    if find_adapter(opened) is not None:
        return FileDifferences(opened=opened, notes=opened.file_notes, same_parameters=False)
    check = _check(model, opened)
    notes = [*opened.file_notes, *(x for x in model.notes if x.startswith(STORED_INSTEAD))]
    told = [
        x
        for x in check.findings
        if (x.severity != "info" or x.code in _TOLD) and x.code not in _IN_FILE_NOTES
    ]
    notes += [_note(x) for x in told[:_MAX_NOTES]]
    if check.error:
        notes.append(f"the files do not match the config: {check.error}")
    if more := told[_MAX_NOTES:]:
        notes.append(
            f"{format_count(len(more), 'more finding')}: {Call('verify', opened.name)} lists all"
        )
    same = not check.error and _ABOUT_SIZES.isdisjoint(x.code for x in check.findings)
    return FileDifferences(opened=opened, notes=tuple(notes), same_parameters=same)


def _check(model: Model, opened: OpenedCheckpoint) -> _Check:
    try:
        if isinstance(model, TensorModel):
            from .state_dict_check import verify_state_dict

            return _Check(verify_state_dict(opened, opened.name, model).findings)
        return _Check(verify_opened(opened, opened.name, model, own_config=True).findings)
    except LlamathError as error:
        return _Check((), str(error))


def _note(finding: Finding) -> str:
    """Return a finding as a note; what is wrong with a file has a command that fixes it."""
    if finding.tensors or finding.code in ("layers", "shape"):
        return (
            finding.message
            if finding.severity == "info"
            else (f"the files do not match the config: {finding.message}")
        )
    return f"{finding.message}; {finding.hint}" if finding.hint else finding.message


def differences_at(model: Model) -> FileDifferences | None:
    """Compare the checkpoint that a model was loaded from with its config; None if there is none.

    Of a remote folder, the headers are requested if the config was: if the config is in the cache
    and the weights are not, nothing is. A file that was named and cannot be read raises an error;
    of a folder, the error becomes a note.
    """
    location = model.location
    is_remote_folder = is_remote_name(location) and not location.endswith(EXTENSIONS)
    if is_remote_folder and (cached := cached_copy(location)):
        location, is_remote_folder = cached, False
    if (
        not location
        or not names_checkpoint(location)
        or (is_remote_folder and not is_url(model.source))
    ):
        return None
    try:
        opened = open_checkpoint(
            location,
            allow_partial=True,
            max_remote_files=_MAX_COMPARED_FILES if is_remote_folder else MAX_REMOTE_FILES,
        )
    except RemoteError as error:
        if not is_remote_folder:
            raise
        if error.code in _NO_FILES:
            return None
        hint = f"; {Call('verify', location)} reads them" if error.code == "many_files" else ""
        return FileDifferences(
            opened=_unread(location),
            is_folder=True,
            notes=(f"the files were not compared with the config: {error}{hint}",),
        )
    except FormatError as error:
        if error.code == "no_checkpoint":
            return None
        if not (os.path.isdir(location) or is_remote_folder):
            raise
        note = f"the files were not compared with the config: {error}" + (
            f"; {error.hint}" if error.hint else ""
        )
        return FileDifferences(opened=_unread(location), is_folder=True, notes=(note,))
    return file_differences(model, opened).replace(
        is_folder=is_remote_folder or os.path.isdir(location)
    )


def _unread(location: str) -> OpenedCheckpoint:
    """Return a checkpoint of which nothing could be read."""
    from ...checkpoint.formats.manifest import Manifest

    return OpenedCheckpoint(name=safe(location), manifest=Manifest(format="", files=(), tensors=()))
