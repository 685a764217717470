"""How many tokens a `tokenizer.model` has: sentencepiece's protobuf (Llama 1 and 2) or tiktoken's lines (Llama 3)."""

from __future__ import annotations

import os
import stat

from ..errors import FormatError, safe

LIMIT = 64 << 20
RESERVED = 256
"""Special tokens that Llama 3's reference adds to the lines of its file."""


def vocabulary(path: str) -> int:
    """The size of the vocabulary, special tokens included."""
    name = safe(path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > LIMIT:
            raise FormatError("not_a_file", f"{name} is not a regular file of at most {LIMIT:,} bytes")
        data = file.read()
    return _lines(data, name) + RESERVED if data[:2].isalnum() else _pieces(data, name)


def _lines(data: bytes, name: str) -> int:
    """Tiktoken: `base64 rank` on each line, ranks counting up from 0."""
    lines = data.splitlines()
    for rank, line in enumerate(lines):
        if not line.endswith(b" %d" % rank):
            raise FormatError("tokenizer", f"{name}: line {rank + 1} should end with its rank {rank}")
    return len(lines)


def _pieces(data: bytes, name: str) -> int:
    """Sentencepiece: field 1 of the outermost message, once for each piece."""
    at, pieces = 0, 0
    while at < len(data):
        tag, at = varint(data, at, name)
        if tag & 7 != 2:
            raise FormatError("tokenizer", f"{name} is neither sentencepiece nor tiktoken: wire type {tag & 7} at byte {at}")
        length, at = varint(data, at, name)
        at += length
        pieces += tag >> 3 == 1
    if at != len(data) or not pieces:
        raise FormatError("tokenizer", f"{name} is cut short or holds no pieces")
    return pieces


def varint(data: bytes, at: int, name: str) -> tuple[int, int]:
    """A number of protobuf's, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise FormatError("tokenizer", f"{name} is not sentencepiece's: a number runs past byte {at:,}")


def tokens(path: str) -> int:
    """How many tokens a `tokenizer.json` has, added ones included."""
    from ..strict import read_json

    data = read_json(path, times=4)
    model = data.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, (dict, list)):
        raise FormatError("tokenizer", f"{safe(path)}: model.vocab should be an object or a list")
    known = set(vocab) if isinstance(vocab, dict) else {x[0] for x in vocab if isinstance(x, list) and x and isinstance(x[0], str)}
    added = data.get("added_tokens") or []
    return len(known | {x["content"] for x in added if isinstance(x, dict) and isinstance(x.get("content"), str)})
