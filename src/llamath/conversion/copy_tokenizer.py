"""Tokenizers beside a checkpoint: which files go along, and what a `tokenizer.model` of sentencepiece says (its `.proto`, 0.2)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..checkpoint.formats.source import LocalFile
from ..checkpoint.formats.tokenizer_model import read_varint
from ..core.errors import FormatError, safe

_TOKENIZER_FILES = (
    "tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
_MAX_BYTES = 64 << 20
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
"""Kinds of tokens, numbered alike by sentencepiece and GGUF."""
TRAINED = {40: "unk", 41: "bos", 42: "eos", 43: "pad"}
DEFAULTS = {"unk": 0, "bos": 1, "eos": 2, "pad": -1}


class Piece(NamedTuple):
    """A token of sentencepiece's."""

    text: bytes
    score: float
    kind: int


class Pieces(NamedTuple):
    """A sentencepiece model, as far as its tokens go."""

    pieces: tuple[Piece, ...]
    ids: Mapping[str, int]  # unk, bos, eos, pad; those that are not there are left out
    dummy_prefix: bool  # a space is put before the text
    bpe: bool  # pieces are merged by score, not chosen by the likeliest split


def find_tokenizer_files(folder: str) -> dict[str, str]:
    """The tokenizer's files by name: in the checkpoint's folder, or where Meta's downloads have them, above it or in `original`."""
    found: dict[str, str] = {}
    for name in _TOKENIZER_FILES:
        places = (
            [folder] if name != "tokenizer.model" else [folder, os.path.join(folder, "original"), os.path.dirname(os.path.abspath(folder))]
        )
        for place in places:
            if os.path.isfile(path := os.path.join(place, name)):
                found.setdefault(name, path)
    return found


def read_tokenizer_file(path: str) -> bytes:
    """All of a small file."""
    with LocalFile(path) as source:
        if source.size > _MAX_BYTES:
            raise FormatError("too_large", f"{safe(path)} has {source.size:,} bytes; a tokenizer's file has at most {_MAX_BYTES:,}")
        return source.read(0, source.size)


def count_tiktoken_ranks(data: bytes) -> int | None:
    """How many tokens Llama 3's `tokenizer.model` has before its special ones; None for another kind of file."""
    lines = data.splitlines()
    if not lines or not all(line.endswith(b" %d" % rank) for rank, line in enumerate(lines)):
        return None
    return len(lines)


def special_token_ids(data: bytes) -> dict[str, int]:
    """The numbers of a `tokenizer.model`'s special tokens, by their usual short names; empty if the file is of neither kind."""
    if (count := count_tiktoken_ranks(data)) is not None:
        return {"bos": count, "eos": count + 1}
    try:
        return dict(sentencepiece(data).ids)
    except FormatError:
        return {}


def sentencepiece(data: bytes) -> Pieces:
    """The tokens of a sentencepiece model, and which of them are special."""
    pieces: list[Piece] = []
    ids, dummy, bpe = dict(DEFAULTS), True, False
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            pieces.append(_piece(value))
        elif field == 2 and isinstance(value, bytes):
            trainer = dict(_fields(value))
            bpe = trainer.get(3, 1) == 2
            ids |= {name: _signed(x) for number, name in TRAINED.items() if isinstance(x := trainer.get(number), int)}
        elif field == 3 and isinstance(value, bytes):
            dummy = bool(dict(_fields(value)).get(3, 1))
    known = {name: x for name, x in ids.items() if 0 <= x < len(pieces)}
    return Pieces(tuple(pieces), known, dummy, bpe)


def _piece(data: bytes) -> Piece:
    found = dict(_fields(data))
    text, score, kind = found.get(1, b""), found.get(2, 0.0), found.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, float) or not isinstance(kind, int) or not NORMAL <= kind <= BYTE:
        raise FormatError("tokenizer", "a piece of tokenizer.model is not text, score and kind")
    return Piece(text, score, kind)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a protobuf message: numbers, single-precision numbers, and bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at, "tokenizer.model")
        kind = tag & 7
        if kind == 0:
            value, at = read_varint(data, at, "tokenizer.model")
            yield tag >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            length, at = read_varint(data, at, "tokenizer.model")
        if length < 0 or at + length > len(data):
            raise FormatError("tokenizer", f"tokenizer.model is not sentencepiece's: byte {at:,}")
        part = data[at : at + length]
        at += length
        yield tag >> 3, struct.unpack("<f", part)[0] if kind == 5 else part
