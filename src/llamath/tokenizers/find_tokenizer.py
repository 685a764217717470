"""Loads the tokenizer of a checkpoint: `tokenizer.json`, else `tokenizer.model`, else the vocabulary in its GGUF file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..checkpoint.formats import gguf as gguf_format
from ..checkpoint.formats.source import LocalFile
from ..checkpoint.open import TOKENIZER_FILES, tokenizer_files
from ..core.errors import FormatError, LlamathError, safe
from ..core.strict_json import read_json
from .tokenizer import Tokenizer, wrap_engine_errors
from .vocabulary_engines import require_tokenizers

_MAX_BYTES = 128 << 20
"""The largest tokenizer file that is read; the largest published ones have about 35 MB."""
_EOS_FILES = ("config.json", "generation_config.json")


def load_tokenizer(path: str) -> Tokenizer:
    """Load the tokenizer of a folder or a file."""
    require_tokenizers()
    if not os.path.isdir(path):
        return _load_file(path)
    if candidates := tokenizer_files(path):
        found = _load_file(candidates[0])
        return Tokenizer(found.engine, found.source, _bos_id(path, found), found.stop_ids.union(_stop_ids(path, found)))
    if files := sorted(name for name in os.listdir(path) if name.endswith(".gguf")):
        return _load_gguf(os.path.join(path, files[0]))
    raise LlamathError(f"{safe(path)}: expected a tokenizer, found none of {', '.join(TOKENIZER_FILES)} and no GGUF file")


def _load_file(path: str) -> Tokenizer:
    with LocalFile(path) as source:
        head = source.read(0, min(4, source.size))
        if head == b"GGUF":
            return _load_gguf(path)
        if source.size > _MAX_BYTES:
            raise FormatError("too_large", f"{safe(path)}: expected a tokenizer of at most {_MAX_BYTES:,} bytes, found {source.size:,}")
        data = source.read(0, source.size)
    if data[:1] == b"{":
        return _load_json(data, path)
    if data[:2].isalnum():
        from .tiktoken_model import read_tiktoken_tokenizer

        return read_tiktoken_tokenizer(data, path)
    from .sentencepiece_model import read_sentencepiece_tokenizer

    return read_sentencepiece_tokenizer(data, path)


def _load_json(data: bytes, path: str) -> Tokenizer:
    from tokenizers import Tokenizer as Engine

    with wrap_engine_errors(path):
        return Tokenizer(Engine.from_str(data.decode()), path)


def _load_gguf(path: str) -> Tokenizer:
    from .gguf_vocabulary import read_gguf_tokenizer

    first = gguf_format.siblings(path)[0]
    with LocalFile(first) as source:
        return read_gguf_tokenizer(source, gguf_format.read(source))


def _bos_id(folder: str, found: Tokenizer) -> int | None:
    name = _token_text(_read_settings(folder, "tokenizer_config.json").get("bos_token"))
    return found.token_id(name) if name is not None else found.bos_id


def _stop_ids(folder: str, found: Tokenizer) -> Iterator[int]:
    """Yield the end-of-sequence ids of config.json, generation_config.json and tokenizer_config.json."""
    for name in _EOS_FILES:
        ids = _read_settings(folder, name).get("eos_token_id")
        yield from (x for x in (ids if isinstance(ids, list) else [ids]) if isinstance(x, int) and not isinstance(x, bool))
    text = _token_text(_read_settings(folder, "tokenizer_config.json").get("eos_token"))
    if text is not None and (token := found.token_id(text)) is not None:
        yield token


def _read_settings(folder: str, name: str) -> Mapping[str, Any]:
    file = os.path.join(folder, name)
    return read_json(file) if os.path.lexists(file) else {}


def _token_text(token: Any) -> str | None:
    """Return the text of a special token, which is a string or an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
