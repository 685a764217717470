"""Builds engines of the `tokenizers` library from a vocabulary: byte-level BPE, or sentencepiece's
BPE and unigram models.

Sentencepiece merges the pair whose piece has the best score, tiktoken the pair whose token has the
lowest rank; `tokenizers` needs the merges as a list. Every split of a token into two tokens is such
a merge, in the order of the tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..checkpoint.formats.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from ..utils.errors import FormatError, MissingExtra, safe

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

_MAX_MERGE_CHARACTERS = 1 << 26
"""Limit on the characters examined to derive merges; a vocabulary of 256,000 tokens needs about
20 million."""
_MAX_SPECIAL_CHARACTERS = 1 << 18
"""Limit on the characters of the names of special tokens that are searched for in plain text."""
_SPACE = "\u2581"


class VocabularyPiece(NamedTuple):
    """A token of a vocabulary."""

    text: str
    score: float = 0.0
    type: int = NORMAL


class SpaceHandling(NamedTuple):
    """Sentencepiece's settings for spaces, and a precompiled normalization."""

    add_prefix_space: bool = True  # put a space before the text
    remove_extra_whitespace: bool = False  # strip the text and collapse runs of spaces
    charsmap: bytes = b""


def require_tokenizers() -> None:
    """Raise an error that says how to install the `tokenizers` library if it is missing."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise MissingExtra("tokenizers", "run") from None


def build_sentencepiece(
    pieces: Sequence[VocabularyPiece], spaces: SpaceHandling, unigram: bool, source: str
) -> Engine:
    """Build sentencepiece's BPE or unigram model."""
    require_tokenizers()
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    unknown = next((i for i, piece in enumerate(pieces) if piece.type == UNKNOWN), None)
    byte_fallback = any(piece.type == BYTE for piece in pieces)
    if unigram:
        engine = Tokenizer(
            models.Unigram(
                [(x.text, x.score) for x in pieces], unk_id=unknown, byte_fallback=byte_fallback
            )
        )
        if cuts := _cuts_in_special_tokens(pieces, source):
            engine.pre_tokenizer = pre_tokenizers.Split(
                _regex("|".join(cuts)), "merged_with_previous"
            )
    else:
        vocabulary = {piece.text: i for i, piece in enumerate(pieces)}
        normal = sorted(
            (x for x in pieces if x.type in (NORMAL, USER_DEFINED)), key=lambda x: -x.score
        )
        merges = list(
            derive_merges(
                {piece.text: rank for rank, piece in enumerate(normal)}, vocabulary, source
            )
        )
        unknown_text = None if unknown is None else pieces[unknown].text
        engine = Tokenizer(
            models.BPE(
                vocab=vocabulary,
                merges=merges,
                unk_token=unknown_text,
                fuse_unk=True,
                byte_fallback=byte_fallback,
            )
        )
    steps: list[normalizers.Normalizer] = (
        [normalizers.Precompiled(spaces.charsmap)] if spaces.charsmap else []
    )
    if spaces.remove_extra_whitespace:
        steps += [normalizers.Strip(), normalizers.Replace(_regex(" {2,}"), " ")]
    steps += [normalizers.Prepend(_SPACE)] if spaces.add_prefix_space else []
    engine.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    strip_prefix = [decoders.Strip(" ", 1, 0)] if spaces.add_prefix_space else []
    engine.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip_prefix]
    )
    _add_special_tokens(engine, pieces)
    return engine


def build_byte_level(
    pieces: Sequence[VocabularyPiece],
    merges: Sequence[tuple[str, str]],
    split_patterns: Sequence[str],
    ignore_merges: bool,
) -> Engine:
    """Build byte-level BPE: the patterns split the text one after the other; with
    `ignore_merges`, words that are tokens are not merged.
    """
    require_tokenizers()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {piece.text: i for i, piece in enumerate(pieces)}
    engine = Tokenizer(
        models.BPE(vocab=vocabulary, merges=list(merges), ignore_merges=ignore_merges)
    )
    splits = [pre_tokenizers.Split(_regex(split), "isolated") for split in split_patterns]
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    engine.decoder = decoders.ByteLevel()
    _add_special_tokens(engine, pieces)
    return engine


def add_bos_and_eos(engine: Engine, bos_id: int | None, eos_id: int | None = None) -> None:
    """Make the engine add special tokens before and after a text."""
    from tokenizers.processors import TemplateProcessing

    ids = {
        name: token for name, token in (("first", bos_id), ("last", eos_id)) if token is not None
    }
    if ids:
        single = [
            *(["first:0"] if bos_id is not None else []),
            "$A:0",
            *(["last:0"] if eos_id is not None else []),
        ]
        special_tokens = [
            {"id": name, "ids": [token], "tokens": [engine.id_to_token(token) or ""]}
            for name, token in ids.items()
        ]
        engine.post_processor = TemplateProcessing(single=single, special_tokens=special_tokens)


def derive_merges(
    ranked_tokens: Mapping[str, int], vocabulary: Mapping[str, int], source: str
) -> Iterator[tuple[str, str]]:
    """Yield every split of a token into two tokens, in the order of the tokens."""
    if (
        sum(len(text) ** 2 for text in ranked_tokens) > _MAX_MERGE_CHARACTERS * 8
        or sum(map(len, ranked_tokens)) > _MAX_MERGE_CHARACTERS
    ):
        raise FormatError(
            "too_large",
            f"{safe(source)}: the tokens of the vocabulary are too long to derive merges",
        )
    for text in ranked_tokens:
        splits = [
            (text[:i], text[i:])
            for i in range(1, len(text))
            if text[:i] in ranked_tokens and text[i:] in ranked_tokens
        ]
        yield from (
            sorted(splits, key=lambda cut: (vocabulary[cut[0]], vocabulary[cut[1]]))
            if len(splits) > 1
            else splits
        )


def _cuts_in_special_tokens(pieces: Sequence[VocabularyPiece], source: str) -> list[str]:
    """Return patterns of where to cut the names of special tokens in plain text, which
    `tokenizers`' unigram model would find there.

    A name like `</s>` is cut between two characters that are neighbors in no other piece, so that
    nothing else changes. Without byte fallback, one of them is a piece, as two unknown neighbors
    are one token.
    """
    ordinary = {x.text for x in pieces if x.type in (NORMAL, USER_DEFINED)}
    neighbors = {pair for text in ordinary for pair in pairwise(text)}
    has_bytes = any(x.type == BYTE for x in pieces)
    names = {x.text: re.escape(x.text) for x in pieces if x.type in (CONTROL, UNKNOWN)} | (
        {"<0x": "<0x[0-9A-F]{2}>"} if has_bytes else {}
    )
    if sum(map(len, names)) > _MAX_SPECIAL_CHARACTERS:
        raise FormatError(
            "too_large",
            f"{safe(source)}: the vocabulary has too many special tokens, or too long ones",
        )
    cuts = []
    for name, pattern in names.items():
        for i in range(1, len(name)):
            pair = (name[i - 1], name[i])
            if pair not in neighbors and (has_bytes or any(x in ordinary for x in pair)):
                before = re.escape(name[:i])
                cuts.append(f"{before}(?={pattern.removeprefix(before)})")
                break
    return cuts


def byte_alphabet() -> dict[int, str]:
    """Return GPT-2's printable character for each byte: printable bytes stand for themselves,
    the others follow from 256.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in set(printable))
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }


def _add_special_tokens(engine: Engine, pieces: Sequence[VocabularyPiece]) -> None:
    from tokenizers import AddedToken

    engine.add_special_tokens(
        [
            AddedToken(x.text, special=True, normalized=False)
            for x in pieces
            if x.type in (CONTROL, UNKNOWN)
        ]
    )
    engine.add_tokens(
        [AddedToken(x.text, normalized=False) for x in pieces if x.type == USER_DEFINED]
    )


def _regex(pattern: str):  # type: ignore[no-untyped-def]
    from tokenizers import Regex

    return Regex(pattern)
