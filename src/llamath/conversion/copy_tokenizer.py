"""Finds and reads the tokenizer files of a checkpoint, which a conversion copies."""

from __future__ import annotations

import os

from ..checkpoint.formats.folder import resolve_inside
from ..checkpoint.formats.sentencepiece import parse_sentencepiece
from ..checkpoint.formats.source import read_small_file
from ..utils.errors import FormatError

_TOKENIZER_FILES = (
    "tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json",
    "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
_MAX_BYTES = 64 << 20


def find_tokenizer_files(folder: str) -> dict[str, str]:
    """Return the paths of the tokenizer's files by name.

    Meta's downloads have `tokenizer.model` in the parent folder or in the folder `original`. A link
    out of its folder is an error, as its target would be copied into a checkpoint that may be
    published.
    """
    paths: dict[str, str] = {}
    for name in _TOKENIZER_FILES:
        folders = [folder]
        if name == "tokenizer.model":
            folders += [os.path.join(folder, "original"), os.path.dirname(os.path.abspath(folder))]
        for candidate in folders:
            if name not in paths and os.path.isfile(os.path.join(candidate, name)):
                paths[name] = resolve_inside(candidate, name)
    return paths


def read_tokenizer_file(path: str) -> bytes:
    """Read a tokenizer file of limited size."""
    return read_small_file(path, "a file", _MAX_BYTES)


def count_tiktoken_ranks(data: bytes) -> int | None:
    """Return the number of tokens before the special ones in Llama 3's `tokenizer.model`; None
    for another kind of file.
    """
    lines = data.splitlines()
    if not lines or not all(line.endswith(b" %d" % rank) for rank, line in enumerate(lines)):
        return None
    return len(lines)


def special_token_ids(data: bytes) -> dict[str, int]:
    """Return the ids of bos, eos, unk and pad in a `tokenizer.model`; empty for another kind of
    file.
    """
    if (count := count_tiktoken_ranks(data)) is not None:
        return {"bos": count, "eos": count + 1}
    try:
        return dict(parse_sentencepiece(data, "tokenizer.model").special_ids)
    except FormatError:
        return {}
