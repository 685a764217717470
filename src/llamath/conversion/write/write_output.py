"""`write_output`: write the files of a new checkpoint into a hidden folder, and move them to
their places when all are complete.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence

from ...checkpoint.formats.conversion_marker import STAGING_FOLDER
from ...utils.errors import ConvertError, os_error_reason, safe
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


def write_output(
    source: SourceFiles,
    files: Sequence[OutputFile],
    output: OutputFolder,
    progress: Progress,
    *,
    dry_run: bool = False,
    also: str = "",
) -> tuple[str, ...]:
    """Write the files, or only check that they can be written; returns the names of those that an
    interrupted run had completed.

    `also` identifies what the files depend on in addition to the source.
    """
    _check_not_source(source, output.path, files)
    staging = StagingFolder(
        output.path, output.staging_suffix, files, _fingerprint(source, files, also)
    )
    if not staging.check_own():
        _check_not_existing(staging, output)
    return () if dry_run else tuple(_write_files(staging, source, output, progress))


def write_error(error: OSError, target: str) -> ConvertError:
    """Return the error for an operating system's error outside of the hidden folder."""
    where = safe(os.fsdecode(error.filename or target))
    return ConvertError(
        f"{where}: {os_error_reason(error)}", hint="existing files have not been changed"
    )


def _check_not_source(source: SourceFiles, folder: str, files: Sequence[OutputFile]) -> None:
    """Refuse to write into the folder of the source, or over its files."""
    source_folder, target_folder = os.path.realpath(source.folder), os.path.realpath(folder)
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


def _fingerprint(source: SourceFiles, files: Sequence[OutputFile], also: str) -> str:
    """Return a digest that is the same for the same conversion of the same files only."""
    digest = hashlib.sha256()
    digest.update(repr((source.stamps, also)).encode())
    for file in files:
        digest.update(repr((file.name, file.size)).encode() + file.identity())
    return digest.hexdigest()


def _check_not_existing(staging: StagingFolder, output: OutputFolder) -> None:
    """Refuse to overwrite files, except with `force`; where a move was interrupted, they are
    checked once it is undone.
    """
    folder = staging.folder
    if output.force or staging.is_moving or not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise ConvertError(
            f"{safe(folder)} is a file; expected a folder", hint="choose another target"
        )
    existing = sorted(x for x in os.listdir(folder) if not x.startswith(STAGING_FOLDER))
    if output.shared:
        existing = [x.name for x in staging.files if x.name in existing]
    if existing:
        staging.remove_if_finished()
        raise ConvertError(
            f"{safe(folder)} already contains {safe(existing[0])}", hint="use force to overwrite it"
        )


def _write_files(
    staging: StagingFolder, source: SourceFiles, output: OutputFolder, progress: Progress
) -> list[str]:
    """Write the files that are not complete yet, and publish all; returns the names of the
    others.
    """
    try:
        staging.lock()  # and undo the move of another conversion
        _check_not_existing(staging, output)
        kept = [x for x in staging.files if staging.is_complete(x)]
        staging.check_disk_space()
        done, total = sum(x.size for x in kept), sum(x.size for x in staging.files)

        def count_bytes(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        for file in staging.files:
            if file not in kept:
                staging.write(file, source.reader, count_bytes)
        names = {x.name for x in staging.files}
        source.check_unchanged()
        staging.publish(
            [x for x in os.listdir(staging.folder) if output.stale.fullmatch(x) and x not in names]
        )
        return [x.name for x in kept]
    except KeyboardInterrupt as stopped:
        if complete := staging.keep_completed():
            stopped.add_note(
                f"{complete} of {len(staging.files)} files are complete; run the "
                "same command again to continue"
            )
        raise
    except BaseException:
        staging.discard()
        raise
    finally:
        staging.unlock()
