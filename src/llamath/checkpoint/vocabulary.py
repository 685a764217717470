"""`read_vocabulary`: the tokens of a checkpoint by id, from `tokenizer.json`, `tokenizer.model`
or the metadata of a GGUF file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..utils.errors import FormatError, safe
from ..utils.record_type import Record
from ..utils.strict_json import parse_json
from .formats import gguf as gguf_format
from .formats.gguf import Array, values
from .formats.sentencepiece import parse_sentencepiece
from .formats.source import LocalFile
from .open import tokenizer_files

_MAX_TOKENS = 1 << 21
_MAX_BYTES = 1 << 28


class Vocabulary(Record):
    """Tokens by id, those that a tokenizer adds included."""

    tokens: Mapping[int, str]
    added: frozenset[int]  # ids of added and special tokens, as far as the file tells
    source: str

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return 1 + max(self.tokens, default=-1)


def read_vocabulary(location: str) -> Vocabulary | None:
    """Return the vocabulary of a local folder or GGUF file; None if there is none."""
    if os.path.isdir(location):
        files = (
            *tokenizer_files(location),
            *sorted(os.path.join(location, x) for x in os.listdir(location) if x.endswith(".gguf")),
        )
        return read_vocabulary(files[0]) if files else None
    if location.endswith("config.json") and os.path.isfile(location):
        found = tokenizer_files(os.path.dirname(location) or ".")
        return read_vocabulary(found[0]) if found else None
    if not os.path.isfile(location) or not location.endswith((".json", ".model", ".gguf")):
        return None
    with LocalFile(location) as source:
        if source.read(0, min(4, source.size)) == b"GGUF":
            metadata = dict(gguf_format.read(source).metadata)
            tokens = metadata.get("tokenizer.ggml.tokens")
            if not isinstance(tokens, Array) or tokens.count > _MAX_TOKENS:
                return None
            types = metadata.get("tokenizer.ggml.token_type")
            kinds = (
                list(values(source, types))
                if isinstance(types, Array) and types.count == tokens.count
                else []
            )
            added = frozenset(i for i, kind in enumerate(kinds) if kind in (3, 4))
            return Vocabulary(
                tokens=dict(enumerate(values(source, tokens))), added=added, source=location
            )
        if source.size > _MAX_BYTES:
            raise FormatError(
                "too_large",
                f"{safe(location)}: expected a tokenizer of at most "
                f"{_MAX_BYTES:,} bytes, found {source.size:,}",
            )
        data = source.read(0, source.size)
    if data[:1] == b"{":
        return _from_json(parse_json(data, location, 8), location)
    pieces = parse_sentencepiece(data, location).pieces
    tokens_by_id = {i: x.text.decode("utf-8", "surrogateescape") for i, x in enumerate(pieces)}
    return Vocabulary(
        tokens=tokens_by_id,
        added=frozenset(i for i, x in enumerate(pieces) if x.type in (3, 4)),
        source=location,
    )


def _from_json(data: Any, location: str) -> Vocabulary | None:
    model = data.get("model") if isinstance(data, Mapping) else None
    if not isinstance(model, Mapping):
        return None
    tokens = dict(_model_tokens(model.get("vocab")))
    added = {
        x["id"]: x["content"]
        for x in data.get("added_tokens") or ()
        if isinstance(x.get("id"), int)
    }
    if len(tokens) + len(added) > _MAX_TOKENS:
        raise FormatError(
            "too_large",
            f"{safe(location)}: expected at most {_MAX_TOKENS:,} "
            f"tokens, found {len(tokens) + len(added):,}",
        )
    return Vocabulary(tokens={**tokens, **added}, added=frozenset(added), source=location)


def _model_tokens(vocab: Any) -> Iterator[tuple[int, str]]:
    """Yield the tokens of a model in tokenizer.json: text → id, or a list of (text, score)."""
    if isinstance(vocab, Mapping):
        yield from ((i, text) for text, i in vocab.items() if isinstance(i, int))
    elif isinstance(vocab, list):
        yield from ((i, str(x[0])) for i, x in enumerate(vocab) if isinstance(x, list) and x)
