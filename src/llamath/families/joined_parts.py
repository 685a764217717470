"""Several towers as one part of a model."""

from __future__ import annotations

from ..core.multimodal import CountedBlock
from .multimodal_registry import Names, Part, Tower


def joined_parts(**parts: tuple[str, Part | Tower]) -> Part:
    """Return the part of these parts, which is counted, not computed; each has the prefix of its
    names in files.
    """
    names: dict[str, str] = {}
    layouts: dict[str, str] = {}
    in_memory: dict[str, str] = {}
    for field, (prefix, part) in parts.items():
        names |= _inside(field, part.names, prefix)
        layouts |= _inside(field, part.layouts)
        in_memory |= _inside(field, part.in_memory) if isinstance(part, Part) else {}
    return Part(
        CountedBlock(parts={field: part.block for field, (_, part) in parts.items()}),
        names,
        layouts,
        in_memory,
    )


def _inside(field: str, names: Names, prefix: str = "") -> Names:
    return {f"{field}.{path}": prefix + name for path, name in names.items()}
