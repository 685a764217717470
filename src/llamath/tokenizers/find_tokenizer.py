"""Which tokenizer a checkpoint brings: `tokenizer.json`, else `tokenizer.model`, else the vocabulary inside its GGUF file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..checkpoint.formats import gguf as gguf_format
from ..checkpoint.formats.source import LocalFile
from ..core.errors import FormatError, LlamathError, safe
from ..core.strict_json import read_json
from .tokenizer import Tokenizer, guarded
from .vocabulary_engines import require

LIMIT = 128 << 20
"""The longest tokenizer file that is read; the largest published ones have some 35 MB."""
ENDS = ("config.json", "generation_config.json")
FILES = ("tokenizer.json", "tokenizer.model")


def tokenizer(path: str) -> Tokenizer:
    """The tokenizer of a folder, or in one file."""
    require()
    if not os.path.isdir(path):
        return _file(path)
    for name in FILES:
        if os.path.lexists(place := os.path.join(path, name)):
            found = _file(place)
            return Tokenizer(found.engine, found.source, _start(path, found), found.stop.union(_ends(path, found)))
    held = sorted(name for name in os.listdir(path) if name.endswith(".gguf"))
    if held:
        return _gguf(os.path.join(path, held[0]))
    raise LlamathError(f"{safe(path)}: expected a tokenizer, found none of {', '.join(FILES)} and no GGUF file")


def _file(path: str) -> Tokenizer:
    with LocalFile(path) as source:
        head = source.read(0, min(4, source.size))
        if head == b"GGUF":
            return _gguf(path)
        if source.size > LIMIT:
            raise FormatError("too_large", f"{safe(path)}: expected a tokenizer of at most {LIMIT:,} bytes, found {source.size:,}")
        data = source.read(0, source.size)
    if data[:1] == b"{":
        return _json(data, path)
    if data[:2].isalnum():
        from .tiktoken_model import read as read_tiktoken

        return read_tiktoken(data, path)
    from .sentencepiece_model import read as read_pieces

    return read_pieces(data, path)


def _json(data: bytes, path: str) -> Tokenizer:
    from tokenizers import Tokenizer as Engine

    with guarded(path):
        return Tokenizer(Engine.from_str(data.decode()), path)


def _gguf(path: str) -> Tokenizer:
    from .gguf_vocabulary import read

    first = gguf_format.siblings(path)[0]
    with LocalFile(first) as source:
        return read(source, gguf_format.read(source))


def _start(folder: str, found: Tokenizer) -> int | None:
    name = _content(_settings(folder, "tokenizer_config.json").get("bos_token"))
    return found.mark(name) if name is not None else found.bos


def _ends(folder: str, found: Tokenizer) -> Iterator[int]:
    """The ids that end a text: of the configuration, of the settings for generation, and the tokenizer's own."""
    for file in ENDS:
        said = _settings(folder, file).get("eos_token_id")
        yield from (x for x in (said if isinstance(said, list) else [said]) if isinstance(x, int) and not isinstance(x, bool))
    name = _content(_settings(folder, "tokenizer_config.json").get("eos_token"))
    if name is not None and (token := found.mark(name)) is not None:
        yield token


def _settings(folder: str, name: str) -> Mapping[str, Any]:
    place = os.path.join(folder, name)
    return read_json(place) if os.path.lexists(place) else {}


def _content(said: Any) -> str | None:
    """A special token's text, written plainly or as an object."""
    text = said.get("content") if isinstance(said, dict) else said
    return text if isinstance(text, str) else None
