"""`read_checkpoint`: anything that names a checkpoint → its manifest: a path, a hub id, an address on the web or in an object store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import FormatError, safe
from .record import Record
from .strict import config_in

if TYPE_CHECKING:
    from .formats.manifest import Manifest

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(?:@\S+)?", re.ASCII)


class Checkpoint(Record):
    """What a checkpoint contains, the configuration beside it, and the commit it was read at."""

    name: str
    manifest: Manifest
    config: Mapping[str, Any] | None = None
    revision: str = ""

    @property
    def note(self) -> str:
        """What a command says on stderr: the commit that a name on the hub stands for now."""
        return f"{safe(self.name)} is at commit {self.revision}" if self.revision else ""

    @property
    def place(self) -> str:
        """Where its files lie, at that commit: what `load` and `beside` can be asked for; of a path on disk, the path."""
        known = self.manifest.files[0].name if self.manifest.files else str((self.manifest.index or {}).get("path", ""))
        return f"{known.rpartition('/')[0]}/" if addressed(known) else self.name


def read_checkpoint(text: str, *, config: bool = False, problems: list[FormatError] | None = None) -> Checkpoint:
    """Read a checkpoint's header, wherever it is; what is there on disk is meant before anything else."""
    if os.path.lexists(text) or not (addressed(text) or _is_id(text)):
        from .formats import checkpoint

        manifest = checkpoint.read(text, problems)
        folder = text if os.path.isdir(text) else os.path.dirname(text)
        return Checkpoint(name=text, manifest=manifest, config=config_in(folder)[0] if config else None)
    from .hub import read_remote

    found = read_remote(text, config=config, problems=problems)
    return Checkpoint(name=text, manifest=found.manifest, config=found.config, revision=found.revision)


def addressed(text: str) -> bool:
    """Whether a name says of itself that it is elsewhere: `hf://`, `https://`, `s3://`."""
    return re.match(r"[a-z][a-z0-9]{1,9}://", text) is not None


def _is_id(text: str) -> bool:
    if not _ID.fullmatch(text):
        return False
    from .formats.checkpoint import ENDINGS

    return not text.endswith((*ENDINGS, ".json"))


def read_config(text: str) -> tuple[Mapping[str, Any], str]:
    """The configuration at an address, and where exactly it was found."""
    from .hub import read_config as fetched

    return fetched(text)
