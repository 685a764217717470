"""Sentencepiece's `tokenizer.model` (Llama 1 and 2, Mistral, Gemma 1 to 3): a protobuf message, read here field by field.

The fields are those of sentencepiece_model.proto: 1 a piece (1 text, 2 score, 3 kind), 2 how it was trained (3 unigram or BPE, 41 and 42
the ids of start and end), 3 the normaliser (2 a table of characters, 3 a space before the text, 4 spaces squeezed).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..checkpoint.formats.tokenizer_model import read_varint
from ..core.errors import FormatError, safe
from .tokenizer import Tokenizer, wrap_engine_errors
from .vocabulary_engines import BYTE, NORMAL, Piece, SpaceHandling, add_bos_and_eos, build_sentencepiece

UNIGRAM, BPE = 1, 2
WORDS = {0: "varint", 1: "64 bits", 2: "bytes", 5: "32 bits"}


def read_sentencepiece_tokenizer(data: bytes, source: str) -> Tokenizer:
    """The tokenizer in these bytes; a text begins with `<s>`, as Llama's reference has it."""
    pieces: list[Piece] = []
    trained: dict[int, int | bytes] = {}
    normal: dict[int, int | bytes] = {}
    for number, value in fields(data, source):
        if number == 1 and isinstance(value, bytes):
            pieces.append(_piece(value, source))
        elif number == 2 and isinstance(value, bytes):
            trained = dict(fields(value, source))
        elif number == 3 and isinstance(value, bytes):
            normal = dict(fields(value, source))
    kind = trained.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE) or not pieces:
        raise FormatError("tokenizer", f"{safe(source)}: expected sentencepiece's unigram or BPE model with pieces, found type {kind!r}")
    charsmap = normal.get(2, b"")
    spaces = SpaceHandling(bool(normal.get(3, 1)), bool(normal.get(4, 1)), charsmap if isinstance(charsmap, bytes) else b"")
    start, end = (_id(trained, field, usual, len(pieces)) for field, usual in ((41, 1), (42, 2)))
    with wrap_engine_errors(source):
        engine = build_sentencepiece(pieces, spaces, kind == UNIGRAM, source)
        add_bos_and_eos(engine, start)
    return Tokenizer(engine, source, start, () if end is None else (end,))


def fields(data: bytes, source: str) -> Iterator[tuple[int, int | bytes]]:
    """A message's fields in order: the number and an int or bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at, safe(source))
        kind = tag & 7
        if kind == 0:
            value, at = read_varint(data, at, safe(source))
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = read_varint(data, at, safe(source))
        elif kind in WORDS:
            size = 8 if kind == 1 else 4
        else:
            raise FormatError("tokenizer", f"{safe(source)}: expected protobuf, found wire type {kind} before byte {at:,}")
        if at + size > len(data):
            raise FormatError("tokenizer", f"{safe(source)}: expected {size:,} bytes from byte {at:,}, found its end at byte {len(data):,}")
        yield tag >> 3, data[at : at + size]
        at += size


def _piece(data: bytes, source: str) -> Piece:
    found = dict(fields(data, source))
    text, score, kind = found.get(1, b""), found.get(2, bytes(4)), found.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or len(score) != 4 or not isinstance(kind, int) or not 1 <= kind <= BYTE:
        raise FormatError("tokenizer", f"{safe(source)}: expected a piece with text, score and kind, found {data[:40]!r}")
    try:
        return Piece(text.decode(), struct.unpack("<f", score)[0], kind)
    except UnicodeDecodeError:
        raise FormatError("tokenizer", f"{safe(source)}: expected a piece in UTF-8, found {text[:40]!r}") from None


def _id(trained: dict[int, int | bytes], field: int, usual: int, size: int) -> int | None:
    """The id of a special token; −1, written as 2⁶⁴ − 1, is none."""
    found = trained.get(field, usual)
    return found if isinstance(found, int) and found < size else None
