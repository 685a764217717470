"""`choose_gguf`: the GGUF model of a folder; several are an error that lists them, with sizes,
types and how to choose.

A split model is one choice. Adapters, vision encoders (`mmproj`) and importance matrices are no
models; one model next to them is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...utils.errors import FormatError, safe
from ...utils.number_format import format_count
from .folder import Folder, LocalFolder
from .gguf import read, siblings

FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
    14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
    36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0",
}  # fmt: skip
"""`general.file_type` → llama.cpp's name (llama.h, `llama_ftype`)."""
_TYPE_IN_NAME = re.compile(
    r"(?:^|[-._])(I?Q[1-8]_[0-9A-Z_]{1,6}|TQ[12]_0|BF16|F16|F32"
    r"|MXFP4(?:_MOE)?)(?:[-._]|$)",
    re.IGNORECASE,
)
_MAX_READ, _MAX_SHOWN = 64, 24
"""Maximum models whose headers are read, and that are shown."""


class GGUFChoice(NamedTuple):
    """A GGUF model or another GGUF file: its first file and the others of a split one."""

    names: Sequence[str]
    size: int  # 0 if it is unknown
    type: str  # of the file, such as Q4_K_M; empty if it is unknown
    is_model: bool = True


def choose_gguf(folder: Folder, names: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return the files of the only model among these, with notes on the others; raise if there
    are several.
    """
    choices = find_choices(folder, names)
    models = [x for x in choices if x.is_model]
    if len(models) == 1 or len(choices) == 1:
        chosen = (models or choices)[0]
        others = [x for x in choices if x is not chosen]
        notes = tuple(
            f"{safe(x.names[0], 100)} is left out: {x.type or 'no language model'}" for x in others
        )
        return chosen.names, notes
    raise _several(folder, models or choices)


def find_choices(folder: Folder, names: Sequence[str]) -> list[GGUFChoice]:
    """Return the models and other files, a split model as one."""
    present, done = set(names), set[str]()
    choices: list[GGUFChoice] = []
    for name in names:
        if name in done:
            continue
        parts = [x for x in siblings(name) if x in present] or [name]
        done.update(parts)
        choices.append(_describe(folder, parts, len(choices) < _MAX_READ))
    return choices


def _describe(folder: Folder, parts: Sequence[str], with_header: bool) -> GGUFChoice:
    match = _TYPE_IN_NAME.search(parts[0].removesuffix(".gguf"))
    by_name = match[1].upper() if match else ""
    is_model = not parts[0].lower().startswith(("mmproj", "imatrix"))
    if not isinstance(folder, LocalFolder) or not with_header:
        return GGUFChoice(
            parts, 0, by_name if is_model else "a vision encoder or an importance matrix", is_model
        )
    size = 0
    for name in parts:
        source = folder.open(name)
        if source is not None:
            with source:
                size += source.size
    try:
        source = folder.open(parts[0])
        if source is None:
            return GGUFChoice(parts, size, by_name, is_model)
        with source:
            metadata = read(source).metadata
    except FormatError:
        return GGUFChoice(parts, size, by_name, is_model)
    if (kind := metadata.get("general.type")) in ("adapter", "mmproj", "imatrix") or metadata.get(
        "general.architecture"
    ) == "clip":
        what = {"adapter": "an adapter", "imatrix": "an importance matrix"}.get(
            str(kind), "a vision encoder"
        )
        return GGUFChoice(parts, size, what, False)
    number = metadata.get("general.file_type")
    return GGUFChoice(
        parts, size, (FILE_TYPES.get(number) if type(number) is int else None) or by_name, is_model
    )


def _several(folder: Folder, choices: Sequence[GGUFChoice]) -> FormatError:
    """Return the error that lists the choices, smallest first."""
    ordered = sorted(choices, key=lambda x: x.size)
    shown = ", ".join(map(_in_words, ordered[:_MAX_SHOWN]))
    more = f" and {len(ordered) - _MAX_SHOWN:,} more" if len(ordered) > _MAX_SHOWN else ""
    message = (
        f"{safe(folder.name) or 'this folder'} contains "
        f"{format_count(len(choices), 'GGUF model')}: {shown}{more}"
    )
    example = folder.path(next((x for x in ordered if x.type == "Q4_K_M"), ordered[0]).names[0])
    hint = (
        f"name one of them, such as {safe(example)}: fewer bits take less memory and are less "
        "exact; Q4_K_M is a usual compromise"
    )
    return FormatError("ambiguous", message, hint=hint)


def _in_words(x: GGUFChoice) -> str:
    parts = f"{len(x.names)} parts" if len(x.names) > 1 else ""
    size = (f"{x.size / 1e9:.2f} GB" if x.size >= 10**7 else f"{x.size:,} bytes") if x.size else ""
    facts = ", ".join(filter(None, (x.type, parts, size)))
    return f"{safe(x.names[0], 100)} ({facts})" if facts else safe(x.names[0], 100)
