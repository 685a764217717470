"""`broken_file_notes`: what is wrong with the weight files next to a config, for commands that
read the config alone.
"""

from __future__ import annotations

import os

from ..utils.errors import Call, FormatError, Name
from .formats.folder_kind import OTHER_KINDS
from .open import missing_shards_note, names_checkpoint, open_checkpoint

_NO_FAULTS = frozenset(("no_checkpoint", "ambiguous", *OTHER_KINDS))
"""Codes of errors of folders without weights, with several models, and of other kinds."""
_MAX_NOTES = 3


def broken_file_notes(path: str) -> tuple[str, ...]:
    """Return notes on the local files at a path: what each that is broken is, and the command
    that fixes it.
    """
    if not os.path.lexists(path) or not names_checkpoint(path):
        return ()
    try:
        opened = open_checkpoint(path, allow_partial=True, local_only=True)
    except FormatError as error:
        return () if error.code in _NO_FAULTS else (_note(error),)
    notes = [
        *map(_note, opened.problems),
        *([missing_shards_note(opened.manifest)] if opened.manifest.missing_files else []),
    ]
    if len(notes) > _MAX_NOTES:
        verify = Call("verify", Name("path"))
        notes[_MAX_NOTES:] = [
            f"{len(notes) - _MAX_NOTES:,} more files are broken: {verify} names all"
        ]
    return tuple(notes)


def _note(error: FormatError) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)
