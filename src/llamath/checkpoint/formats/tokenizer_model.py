"""Count the tokens of a `tokenizer.model` (SentencePiece in Llama 1 and 2, tiktoken in Llama 3)
or a `tokenizer.json`.
"""

from __future__ import annotations

import json
import re

from ...utils.errors import FormatError, safe
from .sentencepiece import count_pieces
from .source import LocalFile

LIMIT, REGION, VALUES = 48 << 20, 20 << 20, 1 << 20
"""Maximum bytes of a file, bytes of its vocabulary and values in it; the largest published
vocabularies have 260,000 tokens."""
_RESERVED = 256
"""Special tokens that Llama 3's reference code adds to those in the file."""


def count_model_tokens(path: str) -> int:
    """Return the number of tokens, including special tokens, of a `tokenizer.model`."""
    name = safe(path)
    with LocalFile(path) as file:
        if file.size > LIMIT:
            raise FormatError(
                "too_large", f"{name} has {file.size:,} bytes; at most {LIMIT:,} are read"
            )
        data = file.read(0, file.size)
    return (
        _lines(data, name) + _RESERVED
        if data[:2].isalnum()
        else count_pieces(data, path, limit=VALUES // 2)
    )


def _lines(data: bytes, name: str) -> int:
    """Count the tokens of a tiktoken file: `base64 rank` on each line, ranks from 0."""
    if data.count(b"\n") > VALUES:
        raise FormatError("too_large", f"{name} has more than {VALUES:,} lines")
    lines = data.splitlines()
    for rank, line in enumerate(lines):
        if not line.endswith(b" %d" % rank):
            raise FormatError(
                "tokenizer", f"{name}: line {rank + 1} should end with its rank {rank}"
            )
    return len(lines)


def count_json_tokens(path: str) -> int:
    """Return the number of tokens, including added tokens, of a `tokenizer.json`.

    Only `vocab` and `added_tokens` are parsed, wherever they are; merges, most of such a file, are
    skipped.
    """
    name = safe(path)
    with LocalFile(path) as file:
        data = file.read(0, min(file.size, LIMIT))
    vocab, added = _after(data, "vocab", name), _after(data, "added_tokens", name)
    if not isinstance(vocab, (dict, list)):
        raise FormatError(
            "tokenizer",
            f"{name}: expected a vocab, an object or a list, in its first {LIMIT >> 20} MiB",
        )
    tokens = (
        set(vocab)
        if isinstance(vocab, dict)
        else {x[0] for x in vocab if isinstance(x, list) and x and isinstance(x[0], str)}
    )
    added_tokens = added if isinstance(added, list) else []
    return len(
        tokens
        | {
            x["content"]
            for x in added_tokens
            if isinstance(x, dict) and isinstance(x.get("content"), str)
        }
    )


def _after(data: bytes, key: str, name: str) -> object:
    """Parse the object or list after the first occurrence of a key; None if there is none."""
    match = re.search(rb'"%b"\s*:\s*(?=[\[{])' % key.encode(), data)
    if match is None:
        return None
    end = data.find(b'"merges"', match.end())
    part = data[match.end() : min(match.end() + REGION, len(data) if end < 0 else end)]
    max_values = VALUES // 2 if part[:1] == b"{" else VALUES
    if sum(map(part.count, (b"{", b"[", b","))) > max_values:
        raise FormatError("too_large", f"{name}: more than {max_values:,} values in its {key}")
    try:
        return json.JSONDecoder().raw_decode(part.decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        raise FormatError(
            "tokenizer", f"{name}: its {key} is not valid JSON or longer than {REGION >> 20} MiB"
        ) from None
