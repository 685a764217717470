"""`StoredParts`: the parts of tensors that a training run's files hold, as a manifest whose
entries can be read from the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..formats.manifest import Manifest


class StoredParts(NamedTuple):
    """The parts of tensors in the files of a folder."""

    manifest: Manifest
    # name of a part → name of its tensor; empty for state of the optimizer or of the training run
    bases: Mapping[str, str]
    # names of tensors with parts that are compressed, damaged or missing, and of unreadable files
    unread: tuple[str, ...] = ()


def with_slice(name: str, slices: list[str]) -> str:
    """Return the name of a tensor with the slice that a part is of it; `:` is a whole dimension."""
    while slices and slices[-1] == ":":
        slices.pop()
    return f"{name}[{', '.join(slices)}]" if slices else name
