"""`read_checkpoint`: anything that names a checkpoint → its manifest: a path, a hub id, an address on the web or in an object store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import FormatError, safe
from ..core.record_type import Record
from ..core.strict_json import find_config, read_json
from ..embedded import named

if TYPE_CHECKING:
    from .formats.manifest import Manifest

PACKED = frozenset(("U8", "I16", "I32", "I64", "U32"))
"""Dtypes that may hold packed values whose headers leave open how many."""
_ID = r"(?a:[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(?:@\S+)?)"


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
    text = named(text)
    if os.path.lexists(text) or not (addressed(text) or _is_id(text)):
        from .formats import checkpoint_files as checkpoint

        manifest = checkpoint.read(text, problems)
        folder = text if os.path.isdir(text) else os.path.dirname(text)
        return Checkpoint(name=text, manifest=manifest, config=find_config(folder)[0] if config else None)
    from .hub import read_remote

    found = read_remote(text, config=config, problems=problems)
    return Checkpoint(name=text, manifest=found.manifest, config=found.config, revision=found.revision)


def quantization(place: str, manifest: Manifest) -> Mapping[str, Any] | None:
    """What the config.json beside the tensors says of the way they are packed; read only where it could matter."""
    beside = os.path.join(place if os.path.isdir(place) else os.path.dirname(place), "config.json")
    if manifest.format == "gguf" or PACKED.isdisjoint(manifest.columns.dtype) or not (addressed(beside) or os.path.isfile(beside)):
        return None
    return declared(read_config(beside)[0] if addressed(beside) else read_json(beside))


def declared(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a configuration says of the way values are packed."""
    for part in (config, config.get("text_config")):
        for key in ("quantization_config", "compression_config", "quantization"):
            if isinstance(part, Mapping) and isinstance(found := part.get(key), Mapping):
                return found
    return None


def addressed(text: str) -> bool:
    """Whether a name says of itself that it is elsewhere: `hf://`, `https://`, `s3://`."""
    return "://" in text and re.match(r"[a-z][a-z0-9]{1,9}://", text) is not None


def _is_id(text: str) -> bool:
    if not re.fullmatch(_ID, text):
        return False
    from .formats.checkpoint_files import ENDINGS

    return not text.endswith((*ENDINGS, ".json"))


def read_config(text: str) -> tuple[Mapping[str, Any], str]:
    """The configuration at an address, and where exactly it was found."""
    from .hub import read_config as fetched

    return fetched(text)
