"""Llama 3's `tokenizer.model`: a line with base64 and rank for each token; the special tokens after them are known by their places."""

from __future__ import annotations

import base64
import binascii

from ..core.errors import FormatError, safe
from .pretokenizers import SPLITS
from .tokenizer import Tokenizer, guarded
from .vocabulary_engines import CONTROL, Piece, alphabet, around, from_bytes, merged

MARKS = {
    0: "<|begin_of_text|>",
    1: "<|end_of_text|>",
    4: "<|finetune_right_pad_id|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
    8: "<|eom_id|>",
    9: "<|eot_id|>",
    10: "<|python_tag|>",
}
"""Llama 3.1's special tokens, by their place after the last rank; Llama 3 has `<|reserved_special_token_…|>` at 4, 8 and 10."""
COUNT = 256


def read(data: bytes, source: str) -> Tokenizer:
    """The tokenizer in these bytes; a text begins with `<|begin_of_text|>`."""
    letters = alphabet()
    ranks: dict[str, int] = {}
    for rank, line in enumerate(data.splitlines()):
        word, _, number = line.partition(b" ")
        try:
            token = base64.b64decode(word, validate=True)
        except binascii.Error:
            token = b""
        if not token or number != b"%d" % rank:
            raise FormatError("tokenizer", f"{safe(source)}: line {rank + 1}: expected base64 and the rank {rank}, found {line[:40]!r}")
        ranks["".join(map(letters.__getitem__, token))] = rank
    if len(ranks) != rank + 1 or not all(letter in ranks for letter in letters.values()):
        raise FormatError("tokenizer", f"{safe(source)}: expected each token once and every byte among them, found {len(ranks):,} tokens")
    with guarded(source):
        marks = [Piece(name, kind=CONTROL) for name in special_tokens()]
        engine = from_bytes([*map(Piece, ranks), *marks], list(merged(ranks, ranks, source)), SPLITS["llama-3"], whole=True)
        around(engine, len(ranks))
    return Tokenizer(engine, source, len(ranks), (len(ranks) + place for place in (1, 8, 9)))


def special_tokens() -> list[str]:
    """The names in order; the reserved ones are numbered through."""
    free = iter(range(COUNT))
    return [MARKS.get(place) or f"<|reserved_special_token_{next(free)}|>" for place in range(COUNT)]
