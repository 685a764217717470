"""The tokenizer of a sentencepiece `tokenizer.model`."""

from __future__ import annotations

from ..checkpoint.formats.sentencepiece import BPE, UNIGRAM, parse_sentencepiece
from ..core.errors import FormatError, safe
from .tokenizer import Tokenizer, wrap_engine_errors
from .vocabulary_engines import SpaceHandling, VocabularyPiece, add_bos_and_eos, build_sentencepiece


def read_sentencepiece_tokenizer(data: bytes, source: str) -> Tokenizer:
    """Return the tokenizer; it adds `<s>` before a text, as Llama's reference implementation does."""
    model = parse_sentencepiece(data, source)
    if model.model_type not in (UNIGRAM, BPE) or not model.pieces:
        raise FormatError("tokenizer", f"{safe(source)}: expected a unigram or BPE model with pieces, found model type {model.model_type}")
    try:
        pieces = [VocabularyPiece(x.text.decode(), x.score, x.type) for x in model.pieces]
    except UnicodeDecodeError as error:
        raise FormatError("tokenizer", f"{safe(source)}: expected pieces in UTF-8, found {error.object[:40]!r}") from None
    spaces = SpaceHandling(model.add_dummy_prefix, model.remove_extra_whitespaces, model.charsmap)
    bos, eos = model.special_ids.get("bos"), model.special_ids.get("eos")
    with wrap_engine_errors(source):
        engine = build_sentencepiece(pieces, spaces, model.model_type == UNIGRAM, source)
        add_bos_and_eos(engine, bos)
    return Tokenizer(engine, source, bos, () if eos is None else (eos,))
