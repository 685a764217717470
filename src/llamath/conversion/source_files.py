"""`SourceFiles`: the files that a conversion reads, which must not change while it runs."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..checkpoint.formats.checkpoint_files import read_checkpoint
from ..checkpoint.formats.folder import LocalFolder
from ..checkpoint.formats.manifest import Manifest
from ..checkpoint.tensor_reader import TensorReader
from ..utils.errors import ConvertError, safe
from ..utils.record_type import Record
from ..utils.strict_json import CONFIG_FILES
from .copy_tokenizer import find_tokenizer_files


class SourceFiles(Record):
    """The opened files of a checkpoint."""

    path: str  # as the user wrote it
    folder: str  # with its configuration and tokenizer
    manifest: Manifest
    reader: TensorReader
    stamps: tuple[_Stamp, ...]  # taken before the first byte was read
    # the checkpoints that this one is made of, if it is not stored as it is
    origins: tuple[SourceFiles, ...] = ()
    changes_digest: str = ""  # of how it is made of them

    def check_unchanged(self) -> None:
        """Raise if a file of the source has changed since it was opened: the new checkpoint
        would be a mixture.
        """
        if self.origins:
            for x in self.origins:
                x.check_unchanged()
            return
        changed = next((old.path for old in self.stamps if _stamp(old.path) != old), None)
        if changed is None and len(take_stamps(self.path, self.folder, self.manifest)) == len(
            self.stamps
        ):
            # a change within one tick of the file system's clock leaves the times equal
            manifest = read_checkpoint(self.path)
            changed = (
                None
                if (manifest.files, manifest.tensors)
                == (self.manifest.files, self.manifest.tensors)
                else self.path
            )
        elif changed is None:
            changed = self.folder
        if changed is not None:
            raise ConvertError(
                f"{safe(changed)} changed during the conversion: expected the file as it was "
                "opened, found another size, time or header",
                hint="repeat the conversion when nothing writes to the source; existing files "
                "have not been changed",
            )


class _Stamp(NamedTuple):
    """The identity of a file's content."""

    path: str
    inode: int
    size: int
    modified_ns: int


def _stamp(path: str) -> _Stamp | None:
    """Return the stamp of a file; None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return _Stamp(path, found.st_ino, found.st_size, found.st_mtime_ns)


def take_stamps(path: str, folder: str, manifest: Manifest | None = None) -> tuple[_Stamp, ...]:
    """Return the stamps of the files that a conversion may read: configuration, tokenizer, and
    the weights, or all files in the folder.
    """
    if manifest is None:
        names = (
            [os.path.join(folder, x) for x in LocalFolder(folder).names()]
            if os.path.isdir(folder)
            else []
        )
    else:
        names = [x.name for x in manifest.files] + ([manifest.index.path] if manifest.index else [])
    names += [os.path.join(folder, x) for x in CONFIG_FILES] + list(
        find_tokenizer_files(folder).values()
    )
    return tuple(
        x for name in sorted({path, *names}) if os.path.isfile(name) and (x := _stamp(name))
    )
