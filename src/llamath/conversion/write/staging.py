"""`StagingFolder`: files are written in a hidden folder in the target folder, synced, and moved to
their places when all are complete.

A killed conversion leaves the previous files as they were, and the same command continues with the
complete files. The folder contains the files under their names, the one being written with the
suffix `.part`, and a marker with the conversion's fingerprint and the names of its files: `plan`,
which is renamed to `moving` before the first file is moved, and to `moved` after the last one. The
previous files are moved to the folder `old` first, configuration first, and deleted when all are
moved: until then, the same conversion finishes the move, and any other undoes it. While `moving`
exists, no command reads the target folder.

Of several folders that are one output, such as the ranks of a checkpoint, each has its own hidden
folder. The files of all are moved before the first marker is renamed to `moved`, and every hidden
folder stays until then, so that the same conversion knows which folders it has finished.

A hidden folder from elsewhere is refused as it is: without a marker that this user has sealed on
this machine, it must be empty. Both folders are opened once, the hidden one and `old` only if they
are real folders, and files are named in them by the open folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from ...checkpoint.formats.conversion_marker import (
    FOREIGN_HINT,
    MOVED,
    MOVING,
    PLAN,
    STAGING_FOLDER,
    ForeignMarkerError,
    Marker,
    open_folder,
    own_key,
    read_marker,
    seal_marker,
)
from ...checkpoint.tensor_reader import TensorReader
from ...utils.errors import ConvertError, os_error_reason, safe
from .output_files import OutputFile

_OLD = "old"
_MARKERS = (PLAN, MOVING, MOVED)
_NEW_PLAN = f"{PLAN}.part"
_OnBytes = Callable[[int], None]


class _StagedFile:
    """A new file in an open folder; a short write is retried until all bytes are written."""

    def __init__(self, folder: int, name: str, on_bytes: _OnBytes) -> None:
        self._on_bytes, self.size = on_bytes, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.file = os.open(name, flags, 0o666, dir_fd=folder)

    def write(self, data: bytes) -> None:
        """Append bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.file, view) :]
        self.size += len(data)
        self._on_bytes(len(data))

    def patch(self, at: int, data: bytes) -> None:
        """Overwrite bytes that have been written."""
        os.pwrite(self.file, data, at)

    def close(self) -> None:
        """Close the file; `sync` reports the errors of writing."""
        with suppress(OSError):
            os.close(self.file)

    def sync(self) -> None:
        """Sync the file to disk."""
        os.fsync(self.file)


class StagingFolder:
    """The hidden folder of one conversion."""

    def __init__(
        self,
        folder: str,
        suffix: str,
        files: Sequence[OutputFile],
        fingerprint: str,
        *,
        is_one_of_several: bool = False,
    ) -> None:
        self.folder, self.files, self.fingerprint = folder, files, fingerprint
        self.is_one_of_several = is_one_of_several
        self.name = STAGING_FOLDER + suffix
        self.path = os.path.join(folder, self.name)
        self.is_moving = False
        """Whether this conversion was interrupted while its files were being moved, so that some
        are in their places."""
        self.is_moved = False
        """Whether this conversion was interrupted after all files of this folder had been moved,
        and perhaps not all of the others."""
        self._created: list[str] = []
        self._key, self._key_is_kept = b"", False
        self._target = self._staging = -1
        self._is_locked = False

    def check_own(self) -> bool:
        """Refuse a hidden folder that this user did not make on this machine; returns whether
        files are being moved, or have been by this conversion of several folders.
        """
        try:
            folder = open_folder(self.path)
        except OSError as error:
            return self._is_no_folder(error)
        try:
            self._key = own_key(create=False)[0]
            found = self._read_markers(folder)
            return MOVING in found or self._has_moved(found)
        finally:
            os.close(folder)

    def lock(self) -> None:
        """Create and lock the folder, and remove everything that is not a complete file of this
        conversion.
        """
        try:
            for path in _missing_folders(self.folder or "."):
                os.mkdir(path)
                self._created.append(path)
            self._target = os.open(self.folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.mkdir(self.name, 0o700, dir_fd=self._target)
                self._created.append(self.path)
            except FileExistsError:
                self._is_no_folder_at(self._target)
            self._staging = open_folder(self.name, self._target)
            fcntl.flock(self._staging, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConvertError(f"another conversion is writing to {safe(self.folder)}") from None
        except OSError as error:
            raise self._error(error, self.folder) from None
        self._key, self._key_is_kept = own_key(create=True)
        found = self._read_markers(self._staging)
        self._is_locked = True  # and of this user: from here on, what is in it may be removed
        if self._has_moved(found):
            self.is_moved = True
            return
        moving, plan = found.get(MOVING), found.get(PLAN)
        if moving is not None and moving.fingerprint == self.fingerprint:
            self.is_moving = True
            return
        try:
            if moving is not None:
                self._undo(moving.names)
                plan = None
            known = (
                {x.name: x.size for x in self.files}
                if plan is not None and plan.fingerprint == self.fingerprint
                else {}
            )
            for name in os.listdir(self._staging):
                if name not in _MARKERS and (
                    name not in known or _file_size(self._staging, name) != known[name]
                ):
                    _remove(self._staging, name)
            if not known:
                self._write_plan()
            with suppress(FileNotFoundError):
                os.unlink(MOVED, dir_fd=self._staging)
        except OSError as error:
            raise self._error(error, self.path) from None

    def is_complete(self, file: OutputFile) -> bool:
        """Whether a file has been written completely."""
        is_shown = self.is_moving or self.is_moved
        folders = (self._staging, self._target) if is_shown else (self._staging,)
        return any(_file_size(folder, file.name) == file.size for folder in folders)

    @property
    def missing_bytes(self) -> int:
        """The size of the files that are not complete."""
        return sum(x.size for x in self.files if not self.is_complete(x))

    def check_disk_space(self, needed: int) -> None:
        """Refuse a conversion for which there is too little disk space."""
        free = shutil.disk_usage(self._staging).free
        if needed > free:
            raise ConvertError(
                f"not enough disk space in {safe(self.folder)}: {needed:,} bytes needed, "
                f"{free:,} free",
                hint="free some space or choose another target",
            )

    def write(self, file: OutputFile, reader: TensorReader, on_bytes: _OnBytes) -> None:
        """Write one file and sync it to disk."""
        partial, staged = f"{file.name}.part", None
        try:
            staged = _StagedFile(self._staging, partial, on_bytes)
            file.write(staged, reader)
            assert staged.size == file.size, (
                f"{file.name} has {staged.size:,} bytes, not the {file.size:,} that were planned"
            )
            staged.sync()
            _move(self._staging, partial, self._staging, file.name)
            os.fsync(self._staging)
        except OSError as error:
            raise self._error(error, os.path.join(self.path, file.name)) from None
        finally:
            if staged is not None:
                staged.close()

    def move_files(self, stale: Iterable[str]) -> None:
        """Move all files to the target folder, and stale files of the checkpoint that they replace
        out of it; `finish_move` ends the move.

        A failure restores the previous files; if that fails, too, the marker stays and nothing
        reads the folder.
        """
        if self.is_moved:
            return
        names, stale = [x.name for x in self.files], list(stale)
        try:
            for name in (*names, *stale):
                if _is_folder(self._target, name):
                    raise IsADirectoryError(
                        errno.EISDIR, os.strerror(errno.EISDIR), os.path.join(self.folder, name)
                    )
            if len(names) == 1 and not stale:
                _move(self._staging, names[0], self._target, names[0])  # this is atomic
                with suppress(OSError):  # a power failure could only bring the previous file back
                    os.fsync(self._target)
                return
            if not self.is_moving:
                _move(self._staging, PLAN, self._staging, MOVING)
                self.is_moving = True
                os.fsync(self._staging)
        except OSError as error:
            raise self._error(error, self.folder) from None
        try:
            self._set_aside([*(x for x in reversed(names) if _exists(self._staging, x)), *stale])
            for name in names:
                with suppress(FileNotFoundError):
                    _move(self._staging, name, self._target, name)
            os.fsync(self._target)
            os.fsync(self._staging)
        except BaseException as error:
            with suppress(OSError):
                self._undo(names)
            if isinstance(error, OSError):
                raise self._error(error, self.folder) from None
            raise

    def finish_move(self) -> None:
        """Make the moved files the checkpoint; a single file is it already."""
        if not self.is_moving:
            return
        try:
            # from here on, the new files, which are synced, are the checkpoint
            _move(self._staging, MOVING, self._staging, MOVED)
            self.is_moving, self.is_moved = False, self.is_one_of_several
        except OSError as error:
            raise self._error(error, self.folder) from None
        with suppress(OSError):
            os.fsync(self._staging)

    def undo_move(self) -> None:
        """Move the new files back, and the previous ones to their places, if that is possible."""
        if self.is_moving:
            with suppress(OSError):
                self._undo([x.name for x in self.files])

    def _set_aside(self, names: Sequence[str]) -> None:
        """Move these files of the target folder to `old`, in this order."""
        with suppress(FileExistsError):
            os.mkdir(_OLD, dir_fd=self._staging)
        old = open_folder(_OLD, self._staging)
        try:
            for name in names:
                with suppress(FileNotFoundError):
                    _move(self._target, name, old, name)
        finally:
            os.close(old)
        os.fsync(self._target)

    def _undo(self, names: Sequence[str]) -> None:
        """Move the new files with these names back, which are those that are not in the hidden
        folder, and then the previous ones.
        """
        for name in names:
            if not _exists(self._staging, name):
                with suppress(FileNotFoundError):
                    _move(self._target, name, self._staging, name)
        if _exists(self._staging, _OLD):
            old = open_folder(_OLD, self._staging)
            try:
                for name in sorted(os.listdir(old)):
                    _move(old, name, self._target, name)
            finally:
                os.close(old)
        os.fsync(self._target)
        _move(self._staging, MOVING, self._staging, PLAN)
        self.is_moving = False
        os.fsync(self._staging)

    def remove_if_finished(self) -> None:
        """Remove the folder if a conversion was killed after it had moved the last file, and
        none is running.
        """
        if self._is_locked:
            return
        with suppress(OSError, ConvertError):
            self._target = os.open(self.folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._staging = open_folder(self.name, self._target)
                fcntl.flock(self._staging, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._key = own_key(create=False)[0]
                if MOVED in self._read_markers(self._staging) or set(os.listdir(self._staging)) <= {
                    PLAN,
                    _NEW_PLAN,
                }:
                    self.remove()
            finally:
                self.unlock()

    def discard(self) -> None:
        """Remove the written files, and folders created for them, unless files are being moved."""
        if self._is_locked and not self._may_be_moving():
            self.remove()
        for path in reversed(self._created):
            with suppress(OSError):
                os.rmdir(path)

    def keep_completed(self) -> int:
        """Keep the complete files for the next run, if it can know them again, and return their
        number; otherwise remove the folder.
        """
        complete = sum(self.is_complete(x) for x in self.files) if self._key_is_kept else 0
        if not complete:
            self.discard()
        for file in self.files if complete else ():
            with suppress(OSError):
                os.unlink(f"{file.name}.part", dir_fd=self._staging)
        return complete

    def unlock(self) -> None:
        """Release the lock."""
        for folder in (self._staging, self._target):
            if folder >= 0:
                with suppress(OSError):
                    os.close(folder)
        self._staging = self._target = -1

    def remove(self) -> None:
        """Remove the hidden folder and everything in it, the marker last, so that what a kill
        leaves is known by it; the next conversion removes what is left.
        """
        with suppress(OSError):
            names = os.listdir(self._staging)
            for name in (
                *(x for x in names if x not in _MARKERS),
                *(x for x in _MARKERS if x in names),
            ):
                _remove(self._staging, name)
            os.rmdir(self.name, dir_fd=self._target)

    def _has_moved(self, markers: Mapping[str, Marker]) -> bool:
        """Whether the markers say that this conversion of several folders has moved the files of
        this one.
        """
        moved = markers.get(MOVED)
        return (
            self.is_one_of_several and moved is not None and (moved.fingerprint == self.fingerprint)
        )

    def _read_markers(self, folder: int) -> dict[str, Marker]:
        """Return the markers in the open hidden folder; refuse it if it is not of this user and
        machine, or is not known to be.
        """
        try:
            found = {
                x: marker
                for x in _MARKERS
                if (marker := read_marker(folder, x, self._key)) is not None
            }
            if not found and not set(os.listdir(folder)) <= {_NEW_PLAN}:
                raise ForeignMarkerError
        except ForeignMarkerError:
            raise self._foreign() from None
        except OSError as error:
            raise self._error(error, self.path) from None
        return found

    def _foreign(self) -> ConvertError:
        what = "of a conversion that this user has not begun on this machine"
        return ConvertError(
            f"{safe(self.path)} is {what}: no file has been moved", hint=FOREIGN_HINT
        )

    def _is_no_folder(self, error: OSError) -> bool:
        """Return False where there is no hidden folder, or none that can be read yet; refuse
        something else in its place.
        """
        if error.errno in (errno.ELOOP, errno.ENXIO) or (
            error.errno == errno.ENOTDIR and os.path.lexists(self.path)
        ):
            raise self._foreign() from None
        return False

    def _is_no_folder_at(self, target: int) -> None:
        if not _is_folder(target, self.name):
            raise self._foreign()

    def _may_be_moving(self) -> bool:
        """Whether the move of this or another conversion is unfinished, or that cannot be ruled
        out.
        """
        try:
            return _exists(self._staging, MOVING)
        except OSError:
            return True

    def _write_plan(self) -> None:
        """Write the marker of this conversion; it replaces that of another one."""
        with suppress(FileNotFoundError):
            os.unlink(_NEW_PLAN, dir_fd=self._staging)
        file = _StagedFile(self._staging, _NEW_PLAN, lambda _: None)
        try:
            file.write(
                seal_marker(
                    file.file,
                    Marker(self.fingerprint, tuple(x.name for x in self.files)),
                    self._key,
                )
            )
            file.sync()
            _move(self._staging, _NEW_PLAN, self._staging, PLAN)
            os.fsync(self._staging)
        finally:
            file.close()

    def _error(self, error: OSError, path: str) -> ConvertError:
        hint = "existing files have not been changed"
        if self._staging >= 0 and self._may_be_moving():
            hint = "some files have been moved; repeat the conversion to move the others"
            if not self._key_is_kept:
                hint = (
                    "some files have been moved; the previous ones are in "
                    f"{safe(os.path.join(self.path, _OLD))}"
                )
        where = (
            error.filename
            if isinstance(error.filename, str) and os.path.isabs(error.filename)
            else path
        )
        return ConvertError(f"{safe(where)} cannot be written: {os_error_reason(error)}", hint=hint)


def _missing_folders(path: str) -> list[str]:
    """Return the folders of a path that do not exist yet, outermost first."""
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _move(source: int, name: str, target: int, new_name: str) -> None:
    """Rename an entry of an open folder to one of another, or of the same."""
    os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def _remove(folder: int, name: str) -> None:
    if _is_folder(folder, name):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _exists(folder: int, name: str) -> bool:
    """Whether an open folder has an entry of this name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_folder(folder: int, name: str) -> bool:
    """Whether an entry of an open folder is a folder, and no link to one."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _file_size(folder: int, name: str) -> int:
    """Return the size of a regular file; -1 if there is none."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1
