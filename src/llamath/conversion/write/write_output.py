"""`write_output`: write the files of a new checkpoint into a hidden folder, and move them to
their places when all are complete.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...checkpoint.formats.conversion_marker import STAGING_FOLDER
from ...utils.errors import Argument, ConvertError, os_error_reason, safe
from ...utils.record_type import Record
from ..source_files import SourceFiles
from .output_files import OutputFile
from .staging import StagingFolder

Progress = Callable[[int, int], None]
"""Called with the number of bytes written so far and in all."""


class OutputFolder(Record):
    """Where the files go, and which others are in the way."""

    path: str
    force: bool = False  # overwrite existing files
    # files in the folder that would be taken for a part of the new checkpoint
    stale: re.Pattern[str] = re.compile(r"(?!)")
    # of the hidden folder, so that several files can be written to one folder
    staging_suffix: str = ""
    shared: bool = False  # other files may be in the folder


class Output(NamedTuple):
    """The files of one folder, and the source that they are made of."""

    source: SourceFiles
    files: Sequence[OutputFile]
    folder: OutputFolder


def write_output(
    outputs: Sequence[Output], progress: Progress, *, dry_run: bool = False
) -> list[tuple[str, ...]]:
    """Write the files of all folders, or only check that they can be written; returns for each
    folder the names of those that an interrupted run had completed.

    No folder is shown before the files of all are complete.
    """
    stagings = []
    for source, files, output in outputs:
        _check_not_source(source, output.path, files)
        stagings.append(
            StagingFolder(
                output.path,
                output.staging_suffix,
                files,
                _fingerprint(source, files),
                is_one_of_several=len(outputs) > 1,
            )
        )
    for staging, x in zip(stagings, outputs, strict=True):
        if not staging.check_own():
            _check_not_existing(staging, x.folder, stagings)
    return [() for _ in outputs] if dry_run else _write_files(stagings, outputs, progress)


def write_error(error: OSError, target: str) -> ConvertError:
    """Return the error for an operating system's error outside of the hidden folder."""
    where = safe(os.fsdecode(error.filename or target))
    return ConvertError(
        f"{where}: {os_error_reason(error)}", hint="existing files have not been changed"
    )


def _check_not_source(source: SourceFiles, folder: str, files: Sequence[OutputFile]) -> None:
    """Refuse to write into the folder of the source, or over its files."""
    of_source = source.path if os.path.isdir(source.path) else source.folder
    source_folder, target_folder = os.path.realpath(of_source), os.path.realpath(folder)
    if os.path.isdir(source.path) and (
        target_folder == source_folder or target_folder.startswith(os.path.join(source_folder, ""))
    ):
        raise ConvertError(
            f"{safe(folder)} is inside the source folder {safe(source.path)}",
            hint="write to another folder",
        )
    source_files = {os.path.realpath(x.name) for x in source.manifest.files}
    source_files |= {os.path.join(source_folder, x) for x in ("config.json", "params.json")}
    if overwritten := [
        x.name for x in files if os.path.join(target_folder, x.name) in source_files
    ]:
        raise ConvertError(
            f"{safe(os.path.join(folder, overwritten[0]))} belongs to the source",
            hint="write to another folder",
        )


def _fingerprint(source: SourceFiles, files: Sequence[OutputFile]) -> str:
    """Return a digest that is the same for the same conversion of the same files only."""
    digest = hashlib.sha256()
    digest.update(repr((source.stamps, source.changes_digest)).encode())
    for file in files:
        digest.update(repr((file.name, file.size)).encode() + file.identity())
    return digest.hexdigest()


def _check_not_existing(
    staging: StagingFolder, output: OutputFolder, all_stagings: Sequence[StagingFolder]
) -> None:
    """Refuse to overwrite files, except with `force`; where a move was interrupted, they are
    checked once it is undone.
    """
    folder = staging.folder
    if output.force or staging.is_moving or staging.is_moved or not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise ConvertError(
            f"{safe(folder)} is a file; expected a folder", hint="choose another target"
        )
    existing = sorted(x for x in os.listdir(folder) if not x.startswith(STAGING_FOLDER))
    if output.shared:
        existing = [x.name for x in staging.files if x.name in existing]
    if existing:
        for x in all_stagings:
            x.remove_if_finished()
        raise ConvertError(
            f"{safe(folder)} already contains {safe(existing[0])}",
            hint=f"{Argument('force', True)} overwrites it",
        )


def _write_files(
    stagings: Sequence[StagingFolder], outputs: Sequence[Output], progress: Progress
) -> list[tuple[str, ...]]:
    """Write the files that are not complete yet, and publish all; returns the names of the
    others.
    """
    try:
        for staging, x in zip(stagings, outputs, strict=True):
            staging.lock()  # and undo the move of another conversion
            _check_not_existing(staging, x.folder, stagings)
        kept = [[x for x in staging.files if staging.is_complete(x)] for staging in stagings]
        stagings[0].check_disk_space(sum(x.missing_bytes for x in stagings))
        done = sum(x.size for files in kept for x in files)
        total = sum(x.size for staging in stagings for x in staging.files)

        def count_bytes(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        for staging, complete, x in zip(stagings, kept, outputs, strict=True):
            for file in staging.files:
                if file not in complete:
                    staging.write(file, x.source.reader, count_bytes)
        for x in outputs:
            x.source.check_unchanged()
        for staging, x in zip(stagings, outputs, strict=True):
            names = {file.name for file in staging.files}
            present = os.listdir(staging.folder)
            staging.move_files(
                [y for y in present if x.folder.stale.fullmatch(y) and y not in names]
            )
        for staging in stagings:
            staging.finish_move()
        for staging in stagings:
            staging.remove()
        return [tuple(x.name for x in files) for files in kept]
    except KeyboardInterrupt as stopped:
        _undo_moves(stagings)
        if count := sum(x.keep_completed() for x in stagings):
            stopped.add_note(
                f"{count} of {sum(len(x.files) for x in stagings)} files are complete; repeat the "
                "conversion to continue"
            )
        raise
    except BaseException:
        _undo_moves(stagings)
        if not any(x.is_moved for x in stagings):  # else the same command finishes the move
            for staging in reversed(stagings):
                staging.discard()
        raise
    finally:
        for staging in stagings:
            staging.unlock()


def _undo_moves(stagings: Sequence[StagingFolder]) -> None:
    """Undo the moves of the other folders where that of one has failed, unless all are done."""
    if len(stagings) > 1 and not any(x.is_moved for x in stagings):
        for staging in stagings:
            staging.undo_move()
