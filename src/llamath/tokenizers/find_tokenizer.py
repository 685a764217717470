"""Which tokenizer a checkpoint brings: `tokenizer.json`, else `tokenizer.model`, else the vocabulary inside its GGUF file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..checkpoint.formats import gguf as gguf_format
from ..checkpoint.formats.source import LocalFile
from ..core.errors import FormatError, LlamathError, safe
from ..core.strict_json import read_json
from .tokenizer import Tokenizer, wrap_engine_errors
from .vocabulary_engines import require_tokenizers

_MAX_BYTES = 128 << 20
"""The longest tokenizer file that is read; the largest published ones have some 35 MB."""
_EOS_FILES = ("config.json", "generation_config.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model")


def load_tokenizer(path: str) -> Tokenizer:
    """The tokenizer of a folder, or in one file."""
    require_tokenizers()
    if not os.path.isdir(path):
        return _load_file(path)
    for name in TOKENIZER_FILES:
        if os.path.lexists(place := os.path.join(path, name)):
            found = _load_file(place)
            return Tokenizer(found.engine, found.source, _bos_id(path, found), found.stop_ids.union(_stop_ids(path, found)))
    held = sorted(name for name in os.listdir(path) if name.endswith(".gguf"))
    if held:
        return _load_gguf(os.path.join(path, held[0]))
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
        from .tiktoken_model import read_tiktoken_tokenizer as read_tiktoken

        return read_tiktoken(data, path)
    from .sentencepiece_model import read_sentencepiece_tokenizer as read_pieces

    return read_pieces(data, path)


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
    """The ids that end a text: of the configuration, of the settings for generation, and the tokenizer's own."""
    for file in _EOS_FILES:
        said = _read_settings(folder, file).get("eos_token_id")
        yield from (x for x in (said if isinstance(said, list) else [said]) if isinstance(x, int) and not isinstance(x, bool))
    name = _token_text(_read_settings(folder, "tokenizer_config.json").get("eos_token"))
    if name is not None and (token := found.token_id(name)) is not None:
        yield token


def _read_settings(folder: str, name: str) -> Mapping[str, Any]:
    place = os.path.join(folder, name)
    return read_json(place) if os.path.lexists(place) else {}


def _token_text(said: Any) -> str | None:
    """A special token's text, written plainly or as an object."""
    text = said.get("content") if isinstance(said, dict) else said
    return text if isinstance(text, str) else None
