"""`StagingFolder`: files are written in a hidden folder in the target folder, synced, and moved to their places when all are complete.

A killed conversion leaves the previous files as they were, and the same command continues with the complete files. The folder contains the
files under their names, the one being written with the suffix `.part`, and a marker with the conversion's fingerprint and the names of its
files: `plan`, which is renamed to `moving` before the first file is moved. The previous files are moved to the folder `old` first,
configuration first, and deleted after the marker: until then, the same conversion finishes the move, and any other undoes it. While the
marker exists, no command reads the target folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ...checkpoint.formats.folder import MOVING, STAGING_FOLDER
from ...checkpoint.tensor_reader import TensorReader
from ...utils.errors import ConvertError, safe
from .output_files import OutputFile

_PLAN, _OLD = "plan", "old"
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_OnBytes = Callable[[int], None]


class _StagedFile:
    """A new file; a short write is retried until all bytes are written."""

    def __init__(self, path: str, on_bytes: _OnBytes) -> None:
        self._on_bytes, self.size = on_bytes, 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)

    def write(self, data: bytes) -> None:
        """Append bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self.size += len(data)
        self._on_bytes(len(data))

    def patch(self, at: int, data: bytes) -> None:
        """Overwrite bytes that have been written."""
        os.pwrite(self._file, data, at)

    def close(self) -> None:
        """Close the file; `sync` reports the errors of writing."""
        with suppress(OSError):
            os.close(self._file)

    def sync(self) -> None:
        """Sync the file to disk."""
        os.fsync(self._file)


class StagingFolder:
    """The hidden folder of one conversion."""

    def __init__(self, folder: str, suffix: str, files: Sequence[OutputFile], fingerprint: str) -> None:
        self.folder, self.files, self.fingerprint = folder, files, fingerprint
        self.path = os.path.join(folder, STAGING_FOLDER + suffix)
        self._created: list[str] = []
        self._lock, self._is_locked = -1, False

    @property
    def is_moving(self) -> bool:
        """Whether this conversion was interrupted while its files were being moved, so that some are in their places."""
        return self._read_marker(MOVING)[:1] == [self.fingerprint]

    def lock(self) -> None:
        """Create and lock the folder, and remove everything that is not a complete file of this conversion."""
        try:
            for path in _missing_folders(self.path):
                os.mkdir(path)
                self._created.append(path)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_locked = True
        except BlockingIOError:
            raise ConvertError(f"another conversion is writing to {safe(self.folder)}") from None
        except OSError as error:
            raise self._error(error, self.folder) from None
        if self.is_moving:
            return
        try:
            if names := self._read_marker(MOVING):
                self._undo(names[1:])
            known = {x.name: x.size for x in self.files} if self._read_marker(_PLAN)[:1] == [self.fingerprint] else {}
            for entry in os.scandir(self.path):
                if entry.name != _PLAN and (entry.is_symlink() or not entry.is_file() or known.get(entry.name) != entry.stat().st_size):
                    _remove(entry.path)
            if not known:
                self._write_marker(_PLAN)
        except OSError as error:
            raise self._error(error, self.path) from None

    def is_complete(self, file: OutputFile) -> bool:
        """Whether a file has been written completely."""
        return any(
            _file_size(os.path.join(folder, file.name)) == file.size
            for folder in ([self.path, self.folder] if self.is_moving else [self.path])
        )

    def check_disk_space(self) -> None:
        """Refuse a conversion for which there is too little disk space."""
        needed = sum(x.size for x in self.files if not self.is_complete(x))
        free = shutil.disk_usage(self.path).free
        if needed > free:
            raise ConvertError(
                f"not enough disk space in {safe(self.folder)}: {needed:,} bytes needed, {free:,} free",
                hint="free some space or choose another target",
            )

    def write(self, file: OutputFile, reader: TensorReader, on_bytes: _OnBytes) -> None:
        """Write one file and sync it to disk."""
        path = os.path.join(self.path, file.name)
        staged = None
        try:
            staged = _StagedFile(f"{path}.part", on_bytes)
            file.write(staged, reader)
            assert staged.size == file.size, f"{file.name} has {staged.size:,} bytes, not the {file.size:,} that were planned"
            staged.sync()
            os.rename(f"{path}.part", path)
            os.fsync(self._lock)
        except OSError as error:
            raise self._error(error, path) from None
        finally:
            if staged is not None:
                staged.close()

    def publish(self, stale: Iterable[str]) -> None:
        """Move all files to the target folder, and remove stale files of the checkpoint that they replace.

        A failure restores the previous files; if that fails, too, the marker stays and nothing reads the folder.
        """
        names, stale = [x.name for x in self.files], list(stale)
        try:
            for name in (*names, *stale):
                if os.path.isdir(path := os.path.join(self.folder, name)) and not os.path.islink(path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if len(names) == 1 and not stale:
                os.replace(os.path.join(self.path, names[0]), os.path.join(self.folder, names[0]))  # this is atomic
                with suppress(OSError):  # a power failure could only bring the previous file back
                    _sync_folder(self.folder)
                shutil.rmtree(self.path, ignore_errors=True)
                return
            if not self.is_moving:
                os.rename(os.path.join(self.path, _PLAN), os.path.join(self.path, MOVING))
                _sync_folder(self.path)
        except OSError as error:
            raise self._error(error, self.folder) from None
        try:
            self._set_aside([*(x for x in reversed(names) if os.path.lexists(os.path.join(self.path, x))), *stale])
            for name in names:
                with suppress(FileNotFoundError):
                    os.rename(os.path.join(self.path, name), os.path.join(self.folder, name))
            _sync_folder(self.folder)
            _sync_folder(self.path)
        except BaseException as error:
            with suppress(OSError):
                self._undo(names)
            if isinstance(error, OSError):
                raise self._error(error, self.folder) from None
            raise
        try:
            os.unlink(os.path.join(self.path, MOVING))  # from here on, the new files, which are synced, are the checkpoint
        except OSError as error:
            raise self._error(error, self.folder) from None
        with suppress(OSError):
            _sync_folder(self.path)
        shutil.rmtree(self.path, ignore_errors=True)  # the next conversion removes what is left

    def _set_aside(self, names: Sequence[str]) -> None:
        """Move these files of the target folder to `old`, in this order."""
        with suppress(FileExistsError):
            os.mkdir(os.path.join(self.path, _OLD))
        for name in names:
            with suppress(FileNotFoundError):
                os.rename(os.path.join(self.folder, name), os.path.join(self.path, _OLD, name))
        _sync_folder(self.folder)

    def _undo(self, names: Sequence[str]) -> None:
        """Move the new files with these names back, which are those that are not in the hidden folder, and then the previous ones."""
        for name in names:
            if not os.path.lexists(staged := os.path.join(self.path, name)):
                with suppress(FileNotFoundError):
                    os.rename(os.path.join(self.folder, name), staged)
        old = os.path.join(self.path, _OLD)
        for name in sorted(os.listdir(old) if os.path.isdir(old) else ()):
            os.rename(os.path.join(old, name), os.path.join(self.folder, name))
        _sync_folder(self.folder)
        os.rename(os.path.join(self.path, MOVING), os.path.join(self.path, _PLAN))
        _sync_folder(self.path)

    def remove_if_finished(self) -> None:
        """Remove the folder if a conversion was killed after it had moved the last file, and none is running."""
        with suppress(OSError):
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if set(os.listdir(folder)) <= {_PLAN, _OLD}:
                    shutil.rmtree(self.path)
            finally:
                os.close(folder)

    def discard(self) -> None:
        """Remove the written files, and folders created for them, unless files are being moved."""
        if self._is_locked and not self.may_be_moving:
            shutil.rmtree(self.path, ignore_errors=True)
        for path in reversed(self._created):
            with suppress(OSError):
                os.rmdir(path)

    def keep_completed(self) -> int:
        """Keep the complete files for the next run and return their number; without any, remove the folder."""
        complete = sum(self.is_complete(x) for x in self.files)
        if not complete:
            self.discard()
        for file in self.files if complete else ():
            with suppress(OSError):
                os.unlink(os.path.join(self.path, f"{file.name}.part"))
        return complete

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            with suppress(OSError):
                os.close(self._lock)
            self._lock = -1

    def _read_marker(self, name: str) -> list[str]:
        """Return the fingerprint in a marker and the names of the files; empty if there is no such marker."""
        try:
            with open(os.path.join(self.path, name), encoding="utf-8", errors="replace") as file:
                return file.read().split("\n")
        except (FileNotFoundError, NotADirectoryError):
            return []

    @property
    def may_be_moving(self) -> bool:
        """Whether the move of this or another conversion is unfinished, or that cannot be ruled out."""
        try:
            os.lstat(os.path.join(self.path, MOVING))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def _write_marker(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, name))
        file = _StagedFile(os.path.join(self.path, name), lambda _: None)
        try:
            file.write("\n".join([self.fingerprint, *(x.name for x in self.files)]).encode())
            file.sync()
        except OSError as error:
            raise self._error(error, self.path) from None
        finally:
            file.close()

    def _error(self, error: OSError, path: str) -> ConvertError:
        reason = "the disk or your quota is full" if error.errno in _DISK_FULL else error.strerror or str(error)
        hint = (
            "some files have been moved; run the same command again to move the others"
            if self.may_be_moving
            else "existing files have not been changed"
        )
        return ConvertError(f"{safe(error.filename or path)} cannot be written: {reason}", hint=hint)


def _missing_folders(path: str) -> list[str]:
    """Return the folders of a path that do not exist yet, outermost first."""
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _file_size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return -1


def _sync_folder(folder: str) -> None:
    handle = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
