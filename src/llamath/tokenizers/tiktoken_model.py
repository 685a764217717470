"""Llama 3's `tokenizer.model`: a line with base64 and rank for each token; special tokens follow the last rank in a fixed order."""

from __future__ import annotations

import base64
import binascii

from ..checkpoint.formats.sentencepiece import CONTROL
from ..core.errors import FormatError, safe
from .pretokenizers import SPLIT_PATTERNS
from .tokenizer import Tokenizer, wrap_engine_errors
from .vocabulary_engines import VocabularyPiece, add_bos_and_eos, build_byte_level, byte_alphabet, derive_merges

_SPECIAL_TOKENS = {
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
_NUM_SPECIAL_TOKENS = 256


def read_tiktoken_tokenizer(data: bytes, source: str) -> Tokenizer:
    """Return the tokenizer; it adds `<|begin_of_text|>` before a text."""
    letters = byte_alphabet()
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
        raise FormatError("tokenizer", f"{safe(source)}: expected distinct tokens that include every byte, found {len(ranks):,} tokens")
    with wrap_engine_errors(source):
        marks = [VocabularyPiece(name, type=CONTROL) for name in special_tokens()]
        engine = build_byte_level(
            [*map(VocabularyPiece, ranks), *marks], list(derive_merges(ranks, ranks, source)), SPLIT_PATTERNS["llama-3"], ignore_merges=True
        )
        add_bos_and_eos(engine, len(ranks))
    return Tokenizer(engine, source, len(ranks), (len(ranks) + place for place in (1, 8, 9)))


def special_tokens() -> list[str]:
    """Return the names of the special tokens in their order; reserved ones are numbered consecutively."""
    free = iter(range(_NUM_SPECIAL_TOKENS))
    return [_SPECIAL_TOKENS.get(place) or f"<|reserved_special_token_{next(free)}|>" for place in range(_NUM_SPECIAL_TOKENS)]
