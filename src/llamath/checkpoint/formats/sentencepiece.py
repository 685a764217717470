"""Reads sentencepiece's `tokenizer.model` (Llama 1 and 2, Mistral, Gemma 1 to 3), a protobuf
message, without sentencepiece.

Fields of sentencepiece_model.proto: 1 a piece (1 text, 2 score, 3 type); 2 the trainer's settings
(3 model type, 40 to 43 the ids of unk, bos, eos and pad); 3 the normalizer's settings (2 a table of
characters, 3 add a dummy prefix, 4 remove extra whitespace).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...utils.errors import FormatError, safe
from ...utils.record_type import Record

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of pieces, which GGUF numbers in the same way."""
UNIGRAM, BPE = 1, 2
"""Types of models."""
_SPECIAL_IDS = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}
"""Special token → the field of its id, and the default."""
_LENGTHS = {1: 8, 5: 4}
"""Wire type → bytes of a value."""
_LENGTH_DELIMITED = 2

_FieldValue = int | bytes


class SentencePiece(NamedTuple):
    """One token of the vocabulary."""

    text: bytes
    score: float
    type: int


class _SentencePieceModel(Record):
    """The contents of a `tokenizer.model`."""

    pieces: tuple[SentencePiece, ...]
    model_type: int  # UNIGRAM, BPE, or one that is not supported here
    special_ids: Mapping[str, int]  # unk, bos, eos, pad; only those that exist
    add_dummy_prefix: bool  # a space is put before the text
    remove_extra_whitespaces: bool
    charsmap: bytes  # a precompiled normalization


def parse_sentencepiece(data: bytes, source: str) -> _SentencePieceModel:
    """Parse a `tokenizer.model`."""
    pieces: list[SentencePiece] = []
    trainer: dict[int, _FieldValue] = {}
    normalizer: dict[int, _FieldValue] = {}
    for number, value in _fields(data, source):
        if number == 1 and isinstance(value, bytes):
            pieces.append(_parse_piece(value, source))
        elif number == 2 and isinstance(value, bytes):
            trainer = dict(_fields(value, source))
        elif number == 3 and isinstance(value, bytes):
            normalizer = dict(_fields(value, source))
    model_type, charsmap = trainer.get(3, UNIGRAM), normalizer.get(2, b"")
    ids = {
        name: _signed(trainer.get(field, default))
        for name, (field, default) in _SPECIAL_IDS.items()
    }
    return _SentencePieceModel(
        pieces=tuple(pieces),
        model_type=model_type if isinstance(model_type, int) else 0,
        special_ids={name: x for name, x in ids.items() if 0 <= x < len(pieces)},
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        charsmap=charsmap if isinstance(charsmap, bytes) else b"",
    )


def count_pieces(data: bytes, source: str, limit: int) -> int:
    """Return the number of pieces, reading only the outermost message; more than `limit` fields
    are refused.
    """
    pieces = 0
    for count, (number, value) in enumerate(_fields(data, source)):
        if count >= limit:
            raise FormatError("too_large", f"{safe(source)} has more than {limit:,} pieces")
        if not isinstance(value, bytes):
            raise FormatError("tokenizer", f"{safe(source)} is neither sentencepiece nor tiktoken")
        pieces += number == 1
    if not pieces:
        raise FormatError("tokenizer", f"{safe(source)} contains no pieces")
    return pieces


def _parse_piece(data: bytes, source: str) -> SentencePiece:
    fields = dict(_fields(data, source))
    text, score, kind = fields.get(1, b""), fields.get(2, bytes(4)), fields.get(3, NORMAL)
    is_typed = (
        isinstance(text, bytes)
        and isinstance(score, bytes)
        and len(score) == 4
        and isinstance(kind, int)
    )
    if not is_typed or not NORMAL <= kind <= BYTE:  # type: ignore[operator]
        raise FormatError(
            "tokenizer",
            f"{safe(source)}: expected a piece with text, score and type, found {data[:40]!r}",
        )
    return SentencePiece(text, struct.unpack("<f", score)[0], kind)  # type: ignore[arg-type]


def _signed(value: _FieldValue) -> int:
    """Return an id; -1 is stored as 2⁶⁴ - 1."""
    if not isinstance(value, int):
        return -1
    return value - (1 << 64) if value >> 63 else value


def _fields(data: bytes, source: str) -> Iterator[tuple[int, _FieldValue]]:
    """Yield the number and the value of each field of a protobuf message: an int, or the bytes
    of any other type.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at, source)
        wire_type = tag & 7
        if wire_type == 0:
            value, at = _varint(data, at, source)
            yield tag >> 3, value
            continue
        if wire_type == _LENGTH_DELIMITED:
            size, at = _varint(data, at, source)
        elif wire_type in _LENGTHS:
            size = _LENGTHS[wire_type]
        else:
            raise FormatError(
                "tokenizer",
                f"{safe(source)} is not a sentencepiece model: wire "
                f"type {wire_type} before byte {at:,}",
            )
        if at + size > len(data):
            raise FormatError(
                "tokenizer",
                f"{safe(source)} is not a sentencepiece model: {size:,} bytes from byte {at:,} "
                f"exceed its {len(data):,}",
            )
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int, source: str) -> tuple[int, int]:
    """Return a varint and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise FormatError(
        "tokenizer", f"{safe(source)} is not a sentencepiece model: a number runs past byte {at:,}"
    )
