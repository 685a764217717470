"""Loads the tokenizer of a checkpoint: `tokenizer.json`, else `tokenizer.model`, else the
vocabulary in its GGUF file.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from ..checkpoint.formats import gguf as gguf_format
from ..checkpoint.formats.folder import resolve_inside
from ..checkpoint.formats.gguf import Array, values
from ..checkpoint.formats.manifest import Manifest
from ..checkpoint.formats.sentencepiece import BPE, CONTROL, NORMAL, UNIGRAM, parse_sentencepiece
from ..checkpoint.formats.source import LocalFile, Source, read_small_file
from ..checkpoint.open import TOKENIZER_FILES, tokenizer_files
from ..utils.errors import FormatError, LlamathError, nearest, safe
from ..utils.strict_json import parse_tokenizer, read_json
from .pretokenizers import GGUF_PRETOKENIZERS, IGNORE_MERGES, SPLIT_PATTERNS
from .tokenizer import Tokenizer, wrap_engine_errors
from .vocabulary_engines import (
    SpaceHandling,
    VocabularyPiece,
    add_bos_and_eos,
    build_byte_level,
    build_sentencepiece,
    byte_alphabet,
    derive_merges,
    require_tokenizers,
)

_MAX_TOKENS = 1 << 20
"""The largest vocabulary that is read; the largest published one has about 260,000 tokens."""


class _TokenizerMetadata:
    """The metadata under `tokenizer.ggml.`; arrays are read on demand."""

    def __init__(self, source: Source, metadata: dict[str, Any]) -> None:
        self.source, self.metadata = source, metadata

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value that is not an array."""
        value = self.metadata.get(f"tokenizer.ggml.{key}", default)
        return default if isinstance(value, Array) else value

    def array(self, key: str, limit: int = _MAX_TOKENS) -> Iterator[Any]:
        """Iterate over the elements of an array; absent, there are none."""
        array = self.metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(array, Array) and array.count > limit:
            raise self.error(f"at most {limit:,} {key}", f"{array.count:,}")
        return values(self.source, array) if isinstance(array, Array) else iter(())

    def token_id(self, key: str, size: int) -> int | None:
        """Return the id of a special token if it is in the vocabulary."""
        token_id = self.get(f"{key}_token_id")
        return token_id if isinstance(token_id, int) and 0 <= token_id < size else None

    def error(self, expected: str, found: object, hint: str = "") -> FormatError:
        """Make the error for an invalid vocabulary."""
        return FormatError(
            "tokenizer",
            f"{safe(self.source.name)}: tokenizer.ggml: expected {expected}, found {found}",
            hint=hint,
        )


def _read_gguf_tokenizer(source: Source, manifest: Manifest) -> Tokenizer:
    """Return the tokenizer of the file."""
    vocabulary = _TokenizerMetadata(source, dict(manifest.metadata))
    pieces, model = _read_pieces(vocabulary), vocabulary.get("model")
    with wrap_engine_errors(source.name):
        if model == "gpt2":
            engine, adds_bos = (
                _build_byte_level(vocabulary, pieces),
                vocabulary.get("pre") in IGNORE_MERGES,
            )
        elif model in ("llama", "t5"):
            spaces = SpaceHandling(
                bool(vocabulary.get("add_space_prefix", True)),
                bool(vocabulary.get("remove_extra_whitespaces", model == "t5")),
            )
            engine, adds_bos = (
                build_sentencepiece(pieces, spaces, model == "t5", source.name),
                model == "llama",
            )
        else:
            raise vocabulary.error("the tokenizer model llama, gpt2 or t5", safe(str(model)))
        bos, eos = vocabulary.token_id("bos", len(pieces)), vocabulary.token_id("eos", len(pieces))
        add_bos_and_eos(
            engine,
            bos if vocabulary.get("add_bos_token", adds_bos) else None,
            eos if vocabulary.get("add_eos_token", model == "t5") else None,
        )
    ends = (vocabulary.token_id(key, len(pieces)) for key in ("eos", "eot", "eom"))
    return Tokenizer(engine, source.name, bos, (x for x in ends if x is not None))


def _read_pieces(vocabulary: _TokenizerMetadata) -> list[VocabularyPiece]:
    texts = list(vocabulary.array("tokens"))
    scores, types = list(vocabulary.array("scores")), list(vocabulary.array("token_type"))
    for name, column in (("scores", scores), ("token_type", types)):
        if column and len(column) != len(texts):
            raise vocabulary.error(f"{len(texts):,} {name}, one for each token", f"{len(column):,}")
    if not texts or len(set(texts)) != len(texts):
        problem = f"{len(texts):,}, with repetitions" if texts else "none"
        raise vocabulary.error(
            "distinct tokens", problem, "put the model's tokenizer.json in the same folder"
        )
    scores, types = scores or [0.0] * len(texts), types or [NORMAL] * len(texts)
    return [VocabularyPiece(*piece) for piece in zip(texts, scores, types, strict=True)]


def _build_byte_level(vocabulary: _TokenizerMetadata, pieces: list[VocabularyPiece]) -> Any:
    merges = [merge.partition(" ")[::2] for merge in vocabulary.array("merges", 4 * _MAX_TOKENS)]
    known = {piece.text for piece in pieces}
    if unknown := next((x for x in merges if not {*x, x[0] + x[1]} <= known), None):
        raise vocabulary.error("merges of tokens into tokens", safe(" ".join(unknown), 60))
    pre = vocabulary.get("pre", "")
    if pre not in GGUF_PRETOKENIZERS:
        near = nearest(str(pre), GGUF_PRETOKENIZERS)
        hint = (
            f"nearest known: {', '.join(near)}"
            if near
            else ("put the model's tokenizer.json in the same folder")
        )
        raise vocabulary.error("a known pre-tokenizer (pre)", safe(repr(pre)), hint)
    return build_byte_level(
        pieces, merges, SPLIT_PATTERNS[GGUF_PRETOKENIZERS[pre]], ignore_merges=pre in IGNORE_MERGES
    )


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
"""Llama 3.1's special tokens, by their place after the last rank; Llama 3 has
`<|reserved_special_token_…|>` at 4, 8 and 10."""
_NUM_SPECIAL_TOKENS = 256


def _read_tiktoken_tokenizer(data: bytes, source: str) -> Tokenizer:
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
            raise FormatError(
                "tokenizer",
                f"{safe(source)}: line {rank + 1}: expected base64 "
                f"and the rank {rank}, found {line[:40]!r}",
            )
        ranks["".join(map(letters.__getitem__, token))] = rank
    if len(ranks) != rank + 1 or not all(letter in ranks for letter in letters.values()):
        raise FormatError(
            "tokenizer",
            f"{safe(source)}: expected distinct tokens that include "
            f"every byte, found {len(ranks):,} tokens",
        )
    with wrap_engine_errors(source):
        special = [VocabularyPiece(name, type=CONTROL) for name in special_tokens()]
        engine = build_byte_level(
            [*map(VocabularyPiece, ranks), *special],
            list(derive_merges(ranks, ranks, source)),
            SPLIT_PATTERNS["llama-3"],
            ignore_merges=True,
        )
        add_bos_and_eos(engine, len(ranks))
    return Tokenizer(engine, source, len(ranks), (len(ranks) + i for i in (1, 8, 9)))


def special_tokens() -> list[str]:
    """Return the names of the special tokens in their order; reserved ones are numbered
    consecutively.
    """
    reserved = iter(range(_NUM_SPECIAL_TOKENS))
    return [
        _SPECIAL_TOKENS.get(i) or f"<|reserved_special_token_{next(reserved)}|>"
        for i in range(_NUM_SPECIAL_TOKENS)
    ]


def _read_sentencepiece_tokenizer(data: bytes, source: str) -> Tokenizer:
    """Return the tokenizer; it adds `<s>` before a text, as Llama's reference implementation
    does.
    """
    model = parse_sentencepiece(data, source)
    if model.model_type not in (UNIGRAM, BPE) or not model.pieces:
        raise FormatError(
            "tokenizer",
            f"{safe(source)}: expected a unigram or BPE model with "
            f"pieces, found model type {model.model_type}",
        )
    try:
        pieces = [VocabularyPiece(x.text.decode(), x.score, x.type) for x in model.pieces]
    except UnicodeDecodeError as error:
        raise FormatError(
            "tokenizer", f"{safe(source)}: expected pieces in UTF-8, found {error.object[:40]!r}"
        ) from None
    if model.charsmap:
        _check_charsmap(model.charsmap, source)
    spaces = SpaceHandling(model.add_dummy_prefix, model.remove_extra_whitespaces, model.charsmap)
    bos, eos = model.special_ids.get("bos"), model.special_ids.get("eos")
    with wrap_engine_errors(source):
        engine = build_sentencepiece(pieces, spaces, model.model_type == UNIGRAM, source)
        add_bos_and_eos(engine, bos)
    return Tokenizer(engine, source, bos, () if eos is None else (eos,))


_MAX_BYTES = 128 << 20
"""The largest tokenizer file that is read; the largest published ones have about 35 MB."""
_EOS_FILES = ("config.json", "generation_config.json")


def load_tokenizer(path: str) -> Tokenizer:
    """Load the tokenizer of a folder or a file."""
    require_tokenizers()
    if not os.path.isdir(path):
        return _load_file(path)
    if candidates := tokenizer_files(path):
        tokenizer = _load_file(candidates[0])
        return Tokenizer(
            tokenizer.engine,
            tokenizer.source,
            _bos_id(path, tokenizer),
            tokenizer.stop_ids.union(stop_ids(path, tokenizer.token_id)),
        )
    if files := sorted(name for name in os.listdir(path) if name.endswith(".gguf")):
        return _load_gguf(resolve_inside(path, files[0]))
    raise LlamathError(
        f"{safe(path)}: expected a tokenizer, found none of "
        f"{', '.join(TOKENIZER_FILES)} and no GGUF file"
    )


def _load_file(path: str) -> Tokenizer:
    with LocalFile(path) as source:
        if source.read(0, min(4, source.size)) == b"GGUF":
            return _load_gguf(path)
    data = read_tokenizer_file(path)
    if data[:1] == b"{":
        return _load_json(data, path)
    if data[:2].isalnum():
        return _read_tiktoken_tokenizer(data, path)

    return _read_sentencepiece_tokenizer(data, path)


def read_tokenizer_file(path: str) -> bytes:
    """Return the bytes of a tokenizer's file."""
    return read_small_file(path, "a tokenizer", _MAX_BYTES)


def _load_json(data: bytes, path: str) -> Tokenizer:
    from tokenizers import Tokenizer as Engine

    with wrap_engine_errors(path):
        _check_rules(parse_tokenizer(data, safe(path)), path)
        return Tokenizer(Engine.from_str(data.decode()), path)  # the bytes that were checked


_MAX_EXPANSION = 256
"""The largest factor by which a tokenizer's rules may lengthen a text; those of published
tokenizers reach 132 (NFKC, spaces, bytes)."""
_EXPANSION = {
    "NFKC": 11, "NFKD": 11, "NFC": 3, "NFD": 3, "Precompiled": 11, "BertNormalizer": 3,
    "Lowercase": 2, "ByteLevel": 2, "Metaspace": 3,
}  # fmt: skip
"""Type of a rule → the most bytes that it makes of one: U+FDFA becomes 33 in NFKC, a byte two in
byte-level BPE, a space three."""
_MAX_RULES = 100
"""The largest number of rules in a sequence; published tokenizers have fewer than 10."""


def _check_rules(data: Any, path: str) -> None:
    """Refuse rules that multiply the length of a text or take long, before the library applies
    them: it cannot be interrupted.

    A regular expression in the decoder would run without a time limit; published decoders have
    none.
    """
    for key in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        rules = list(_rules(data.get(key) if isinstance(data, dict) else None))
        factor = prod(map(_expansion_of, rules))
        found = ""
        if len(rules) > _MAX_RULES:
            found = f"{len(rules):,} rules"
        elif factor > _MAX_EXPANSION:
            found = f"a {key} that may make it {factor:,} times as long"
        elif key == "decoder" and any(
            isinstance(x := rule.get("pattern"), Mapping) and "Regex" in x for rule in rules
        ):
            found = "a regular expression"
        if found:
            raise FormatError(
                "tokenizer",
                f"{safe(path)}: expected a {key} of at most {_MAX_RULES} rules that keeps a text "
                f"about as long as it is, found {found}",
                hint="compare the file with the publisher's",
            )
        for rule in rules:
            if isinstance(charsmap := rule.get("precompiled_charsmap"), str):
                _check_charsmap(base64.b64decode(charsmap), path)


def _check_charsmap(charsmap: bytes, path: str) -> None:
    """Refuse a precompiled normalization with a table that is longer than the data: the library
    would allocate it.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if len(charsmap) < 4 or size % 4 or size > len(charsmap) - 4:
        found = f"{size:,} of {max(0, len(charsmap) - 4):,} bytes"
        raise FormatError(
            "tokenizer",
            f"{safe(path)}: precompiled_charsmap: expected a table of "
            f"32-bit numbers in the data, found {found}",
        )


def _rules(rule: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rules of a sequence, at any depth; the number of nested lists is limited by the
    JSON parser.
    """
    if isinstance(rule, Mapping):
        yield rule
        for key in ("normalizers", "pretokenizers", "decoders", "processors"):
            for part in rule[key] if isinstance(rule.get(key), list) else ():
                yield from _rules(part)


def _expansion_of(rule: Mapping[str, Any]) -> int:
    """Return the largest factor by which a rule lengthens a text; the library knows rules
    without a type by their keys.
    """
    if isinstance(prepended := rule.get("prepend"), str):
        # before every part of a text between special tokens
        return 1 + len(prepended.encode(errors="surrogatepass"))
    if isinstance(special := rule.get("special_tokens"), Mapping):
        return max(1, _template_length(rule, special))
    if "content" not in rule or "pattern" not in rule:
        return _EXPANSION.get(str(rule.get("type")), 1)
    pattern, content = (
        rule.get("pattern"),
        len(str(rule.get("content", "")).encode(errors="surrogatepass")),
    )
    if isinstance(pattern, Mapping) and isinstance(text := pattern.get("String"), str) and text:
        return max(1, -(-content // len(text.encode(errors="surrogatepass"))))
    return 1 + content  # a regular expression may match between all characters


def _template_length(rule: Mapping[str, Any], special: Mapping[str, Any]) -> int:
    """Return the number of texts and tokens in a template for one text."""
    length = 0
    for piece in rule["single"] if isinstance(rule.get("single"), list) else ():
        token = piece.get("SpecialToken") if isinstance(piece, Mapping) else None
        name = token.get("id") if isinstance(token, Mapping) else None
        entry = special.get(name) if isinstance(name, str) else None
        ids = entry.get("ids") if isinstance(entry, Mapping) else None
        length += len(ids) if isinstance(ids, list) else 1
    return length


def _load_gguf(path: str) -> Tokenizer:

    first = gguf_format.siblings(path)[0]
    with LocalFile(first) as source:
        return _read_gguf_tokenizer(source, gguf_format.read(source))


def _bos_id(folder: str, tokenizer: Tokenizer) -> int | None:
    name = _token_text(_read_settings(folder, "tokenizer_config.json").get("bos_token"))
    return tokenizer.token_id(name) if name is not None else tokenizer.bos_id


def stop_ids(folder: str, token_id: Callable[[str], int | None]) -> Iterator[int]:
    """Yield the end-of-sequence ids of config.json, generation_config.json and
    tokenizer_config.json; `token_id` finds the id of a token's text.
    """
    for name in _EOS_FILES:
        ids = _read_settings(folder, name).get("eos_token_id")
        yield from (
            x
            for x in (ids if isinstance(ids, list) else [ids])
            if isinstance(x, int) and not isinstance(x, bool)
        )
    text = _token_text(_read_settings(folder, "tokenizer_config.json").get("eos_token"))
    if text is not None and (token := token_id(text)) is not None:
        yield token


def _read_settings(folder: str, name: str) -> Mapping[str, Any]:
    return (
        read_json(resolve_inside(folder, name))
        if os.path.lexists(os.path.join(folder, name))
        else {}
    )


def _token_text(token: Any) -> str | None:
    """Return the text of a special token, which is a string or an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
