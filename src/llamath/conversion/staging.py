"""`Stage`: files are written in a hidden folder where they will lie, made safe on disk, and moved to their places when all are whole.

So a kill leaves what was there before, and the same command goes on from the files that are whole. The folder holds them under their
names, the one being written with `.part` after it, and `plan` (`moving` from the first move on) with the fingerprint of the conversion.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ..checkpoint.tensor_reader import TensorReader
from ..core.errors import ConvertError, safe
from .target_files import OutputFile

STAGING_FOLDER = ".llamath-convert"
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
OnBytes = Callable[[int], None]


class StagedFile:
    """A new file, whose writes are all or an error."""

    def __init__(self, path: str, moved: OnBytes) -> None:
        self._moved = moved
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)

    def write(self, data: bytes) -> None:
        """Add these bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._moved(len(data))

    def patch(self, at: int, data: bytes) -> None:
        """Write over bytes that are there already."""
        os.pwrite(self._file, data, at)

    def close(self) -> None:
        """Close it, as much of it as there is."""
        os.close(self._file)

    def sync(self) -> None:
        """Have it on disk."""
        os.fsync(self._file)


class StagingFolder:
    """A folder's files to be, and how far they are."""

    def __init__(self, folder: str, label: str, targets: Sequence[OutputFile], fingerprint: str) -> None:
        self.folder, self.targets, self.fingerprint = folder, targets, fingerprint
        self.path = os.path.join(folder, STAGING_FOLDER + label)
        self._made: list[str] = []
        self._lock, self._alone = -1, False

    @property
    def is_moving(self) -> bool:
        """Whether this conversion had been killed while its files were moved: then some are in their places."""
        return self._read_marker("moving") == self.fingerprint

    def begin(self) -> None:
        """Have the folder for this process alone, and in it only what this conversion has finished."""
        try:
            for place in _missing_folders(self.path):
                os.mkdir(place)
                self._made.append(place)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._alone = True
        except BlockingIOError:
            raise ConvertError(f"another conversion is writing to {safe(self.folder)}") from None
        except OSError as error:
            raise self._error(error, self.folder) from None
        if self.is_moving:
            return
        known = {x.name: x.size for x in self.targets} if self._read_marker("plan") == self.fingerprint else {}
        for entry in os.scandir(self.path):
            if entry.name != "plan" and (entry.is_symlink() or not entry.is_file() or known.get(entry.name) != entry.stat().st_size):
                _remove(entry.path)
        if not known:
            self._write_marker("plan")

    def is_complete(self, target: OutputFile) -> bool:
        """Whether a file is whole already."""
        return any(
            _file_size(os.path.join(place, target.name)) == target.size
            for place in ([self.path, self.folder] if self.is_moving else [self.path])
        )

    def check_disk_space(self) -> None:
        """Refuse what the disk has no room for."""
        needed = sum(x.size for x in self.targets if not self.is_complete(x))
        free = shutil.disk_usage(self.path).free
        if needed > free:
            raise ConvertError(
                f"{safe(self.folder)} has no room: {needed:,} bytes are to be written, {free:,} are free",
                hint="make room, or write elsewhere",
            )

    def write(self, target: OutputFile, files: TensorReader, moved: OnBytes) -> None:
        """Write one file and have it on disk, under its name."""
        path = os.path.join(self.path, target.name)
        file = None
        try:
            file = StagedFile(f"{path}.part", moved)
            target.write(file, files)
            file.sync()
            os.rename(f"{path}.part", path)
            os.fsync(self._lock)
        except OSError as error:
            raise self._error(error, path) from None
        finally:
            if file is not None:
                file.close()

    def publish(self, stale: Iterable[str]) -> None:
        """Move all files to their places, and take away what is no part of the checkpoint that they replace."""
        try:
            if not self.is_moving:
                os.rename(os.path.join(self.path, "plan"), os.path.join(self.path, "moving"))
            for target in self.targets:
                with suppress(FileNotFoundError):
                    os.replace(os.path.join(self.path, target.name), os.path.join(self.folder, target.name))
            for name in stale:
                os.unlink(os.path.join(self.folder, name))
            _sync_folder(self.folder)
            shutil.rmtree(self.path)
        except OSError as error:
            raise self._error(error, self.folder) from None

    def remove_if_empty(self) -> None:
        """Take away a hidden folder that a kill left empty, after the last move."""
        with suppress(OSError):
            os.rmdir(self.path)

    def discard(self) -> None:
        """Take away what was written and what was made for it; files that have been moved stay."""
        if self._alone and not self.is_moving:
            shutil.rmtree(self.path, ignore_errors=True)
        for place in reversed(self._made):
            with suppress(OSError):
                os.rmdir(place)

    def keep_completed(self) -> int:
        """Keep what is whole, for the same command to go on from, and say how many files that is; without any, nothing is kept."""
        whole = sum(self.is_complete(x) for x in self.targets)
        if not whole:
            self.discard()
        for target in self.targets if whole else ():
            with suppress(OSError):
                os.unlink(os.path.join(self.path, f"{target.name}.part"))
        return whole

    def unlock(self) -> None:
        """Let others write here."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read_marker(self, name: str) -> str:
        with suppress(OSError), open(os.path.join(self.path, name), encoding="ascii", errors="replace") as file:
            return file.read(100)
        return ""

    def _write_marker(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, name))
        file = StagedFile(os.path.join(self.path, name), lambda _: None)
        try:
            file.write(self.fingerprint.encode())
            file.sync()
        except OSError as error:
            raise self._error(error, self.path) from None
        finally:
            file.close()

    def _error(self, error: OSError, path: str) -> ConvertError:
        reason = "the disk or what you may use of it is full" if error.errno in _DISK_FULL else error.strerror or str(error)
        hint = (
            "some files are in their places already; the same command moves the rest"
            if self.is_moving
            else "nothing that was there has changed"
        )
        return ConvertError(f"{safe(error.filename or path)} cannot be written: {reason}", hint=hint)


def _missing_folders(path: str) -> list[str]:
    """A folder and those above it that do not exist yet, uppermost first."""
    found: list[str] = []
    while path and not os.path.isdir(path):
        found.insert(0, path)
        path = os.path.dirname(path)
    return found


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
