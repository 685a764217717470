"""The tokenizer metadata of a GGUF file, for tokenizers that llama.cpp is known to reproduce.

llama.cpp's `llama` vocabulary is sentencepiece BPE; its `gpt2` vocabularies `llama-bpe` and `qwen2`
are byte-level BPE with a known split pattern (llama-vocab.cpp). For other tokenizers, the file
declares none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...checkpoint.formats.gguf import BOOL, FLOAT32, INT32, KINDS, STRING, UINT32, Array, values
from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.formats.sentencepiece import (
    BPE,
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    parse_sentencepiece,
)
from ...checkpoint.formats.source import LocalFile
from ...checkpoint.gguf_metadata.gguf_keys import MetadataValue
from ...tokenizers.pretokenizers import SPLIT_PATTERNS
from ...utils.errors import LlamathError
from ...utils.strict_json import parse_json, read_json
from ..copy_tokenizer import count_tiktoken_ranks, read_tokenizer_file

_PREFIX, _CHAT_TEMPLATE = "tokenizer.ggml", "tokenizer.chat_template"
_SCALARS = ((bool, BOOL), (int, UINT32), (float, FLOAT32), (str, STRING))
_PRETOKENIZERS = {
    SPLIT_PATTERNS["llama-3"]: ("llama-bpe", True),
    SPLIT_PATTERNS["qwen2"]: ("qwen2", False),
}
"""Split patterns → llama.cpp's name for them, and `ignore_merges`: words that are tokens are not
merged."""
_ADDED_SCORE, _PADDING_SCORE = -1000.0, -10000.0
_ID_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "pad": "padding_token_id",
}


class _UnsupportedTokenizer(LlamathError):
    """A tokenizer that llama.cpp might not reproduce."""


class _TokenTable(NamedTuple):
    """Tokens by id, with their scores (unused in byte-level BPE) and types."""

    texts: list[bytes]
    scores: list[float]
    types: list[int]

    def set(self, token_id: int, text: bytes, score: float, token_type: int) -> None:
        """Set one token; its id must be in the model's vocabulary."""
        if not 0 <= token_id < len(self.texts):
            raise _UnsupportedTokenizer(
                f"it has a token {token_id:,}, but the model's "
                f"vocabulary has {len(self.texts):,} rows"
            )
        self.texts[token_id], self.scores[token_id], self.types[token_id] = text, score, token_type


def tokenizer_metadata(
    files: Mapping[str, str], vocab_size: int, notes: list[str]
) -> list[MetadataValue]:
    """Return the metadata of the tokenizer in these files; if it is not supported, the reason is
    added to `notes`.
    """
    try:
        config = (
            read_json(files["tokenizer_config.json"]) if "tokenizer_config.json" in files else {}
        )
        data = read_tokenizer_file(files["tokenizer.model"]) if "tokenizer.model" in files else b""
        if data and count_tiktoken_ranks(data) is None:
            return _sentencepiece_metadata(data, files, config, vocab_size)
        if "tokenizer.json" in files:
            return _byte_level_metadata(files, config, vocab_size)
        raise _UnsupportedTokenizer(
            "tokenizer.model is a tiktoken file, which lacks its special tokens"
            if data
            else "the checkpoint has no tokenizer files"
        )
    except LlamathError as error:
        notes.append(f"the GGUF file has no tokenizer: {error}")
        return [MetadataValue(f"{_PREFIX}.model", STRING, "none")]


def copy_tokenizer_metadata(manifest: Manifest) -> list[MetadataValue]:
    """Return the tokenizer's metadata of a GGUF file."""
    copied = []
    with LocalFile(manifest.files[0].name) as source:
        for name, x in manifest.metadata.items():
            if not name.startswith("tokenizer."):
                continue
            if isinstance(x, Array):
                kind = next(kind for kind in KINDS if kind.name == x.type)
                found = [
                    y.encode("utf-8", "surrogateescape") if isinstance(y, str) else y
                    for y in values(source, x)
                ]
                # a long one
                is_text = name.startswith(f"{_CHAT_TEMPLATE}.") or name == _CHAT_TEMPLATE
                copied.append(
                    MetadataValue(name, kind, found[0] if is_text else found, array=not is_text)
                )
            else:
                kind = next(kind for value_type, kind in _SCALARS if type(x) is value_type)
                copied.append(MetadataValue(name, kind, x))
    return copied


def _sentencepiece_metadata(
    data: bytes, files: Mapping[str, str], config: Mapping[str, Any], vocab_size: int
) -> list[MetadataValue]:
    model = parse_sentencepiece(data, "tokenizer.model")
    if model.model_type != BPE:
        raise _UnsupportedTokenizer("its sentencepiece model is not a BPE model")
    table = _padded_table(vocab_size)
    for i, piece in enumerate(model.pieces):
        table.set(i, *piece)
    tokens = read_json(files["added_tokens.json"]) if "added_tokens.json" in files else {}
    added = {token: i for token, i in tokens.items() if isinstance(i, int)}
    for token, i in added.items():
        table.set(i, token.encode(), _ADDED_SCORE, USER_DEFINED)
    for i, token_config in _added_tokens_decoder(config).items():
        text = str(token_config.get("content", ""))
        if table.texts[i : i + 1] != [text.encode()] or text in added:
            table.set(
                i,
                text.replace("▁", " ").encode(),
                _ADDED_SCORE,
                CONTROL if token_config.get("special") else USER_DEFINED,
            )
    prefix = config.get("add_prefix_space")
    first = [
        MetadataValue(f"{_PREFIX}.model", STRING, "llama"),
        MetadataValue(f"{_PREFIX}.pre", STRING, "default"),
    ]
    first += [
        MetadataValue(
            f"{_PREFIX}.add_space_prefix",
            BOOL,
            prefix if isinstance(prefix, bool) else model.add_dummy_prefix,
        )
    ]
    scores = MetadataValue(f"{_PREFIX}.scores", FLOAT32, table.scores, array=True)
    adds = {"bos": config.get("add_bos_token", True), "eos": config.get("add_eos_token", False)}
    special = _special_tokens(table, dict(model.special_ids), config, adds)
    return [*first, *_tokens(table), scores, *special, *_chat_template(files, config)]


def _byte_level_metadata(
    files: Mapping[str, str], config: Mapping[str, Any], vocab_size: int
) -> list[MetadataValue]:
    data = parse_json(read_tokenizer_file(files["tokenizer.json"]), "tokenizer.json", times=4)
    model: Mapping[str, Any] = data.get("model") or {}
    patterns = tuple(
        x.get("pattern", {}).get("Regex")
        for x in _steps(data.get("pre_tokenizer"))
        if x.get("type") == "Split"
    )
    name, ignores_merges = _PRETOKENIZERS.get(patterns, ("", False))
    if model.get("type") != "BPE" or not name or bool(model.get("ignore_merges")) != ignores_merges:
        raise _UnsupportedTokenizer(
            "its tokenizer.json is of a kind that llama.cpp is not known to reproduce"
        )
    table = _padded_table(vocab_size)
    for text, i in model["vocab"].items():
        table.set(i, text.encode(), 0.0, NORMAL)
    for token in data.get("added_tokens", ()):
        table.set(
            token["id"],
            token["content"].encode(),
            0.0,
            CONTROL if token.get("special") else USER_DEFINED,
        )
    merges = [x if isinstance(x, str) else " ".join(x) for x in model["merges"]]
    if any(x.count(" ") != 1 for x in merges):
        raise _UnsupportedTokenizer("its merges contain spaces")
    first = [
        MetadataValue(f"{_PREFIX}.model", STRING, "gpt2"),
        MetadataValue(f"{_PREFIX}.pre", STRING, name),
    ]
    begins = [
        step["single"][0].get("SpecialToken", {}).get("id")
        for step in _steps(data.get("post_processor"))
        if step.get("single")
    ]
    adds = {"bos": any(begins), "eos": False}
    special = _special_tokens(
        table, {}, {"bos_token": begins[0], **config} if any(begins) else config, adds
    )
    merge_list = MetadataValue(f"{_PREFIX}.merges", STRING, merges, array=True)
    return [*first, *_tokens(table), merge_list, *special, *_chat_template(files, config)]


def _padded_table(vocab_size: int) -> _TokenTable:
    return _TokenTable(
        [b"[PAD%d]" % i for i in range(vocab_size)],
        [_PADDING_SCORE] * vocab_size,
        [UNUSED] * vocab_size,
    )


def _tokens(table: _TokenTable) -> list[MetadataValue]:
    return [
        MetadataValue(f"{_PREFIX}.tokens", STRING, table.texts, array=True),
        MetadataValue(f"{_PREFIX}.token_type", INT32, table.types, array=True),
    ]


def _special_tokens(
    table: _TokenTable, ids: dict[str, int], config: Mapping[str, Any], adds: Mapping[str, Any]
) -> list[MetadataValue]:
    """Return the ids of the special tokens that the configuration names, and of those that are
    added to a text.
    """
    for word in _ID_KEYS:
        token = config.get(f"{word}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text.encode() in table.texts:
            ids[word] = table.texts.index(text.encode())
    id_keys = [
        MetadataValue(f"{_PREFIX}.{key}", UINT32, ids[word])
        for word, key in _ID_KEYS.items()
        if word in ids
    ]
    return id_keys + [
        MetadataValue(f"{_PREFIX}.add_{word}_token", BOOL, bool(value))
        for word, value in adds.items()
    ]


def _chat_template(files: Mapping[str, str], config: Mapping[str, Any]) -> list[MetadataValue]:
    """Return the chat template, which is copied and never rendered."""
    has_file = "chat_template.jinja" in files
    text = (
        read_tokenizer_file(files["chat_template.jinja"]).decode()
        if has_file
        else config.get("chat_template")
    )
    return [MetadataValue(_CHAT_TEMPLATE, STRING, text)] if isinstance(text, str) else []


def _added_tokens_decoder(config: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    tokens = config.get("added_tokens_decoder")
    return (
        {int(i): x for i, x in tokens.items() if i.isdecimal() and isinstance(x, dict)}
        if isinstance(tokens, dict)
        else {}
    )


def _steps(step: Any) -> list[dict[str, Any]]:
    """Return the steps of a sequence, or a single step as a list."""
    if not isinstance(step, dict):
        return []
    inner = step.get("pretokenizers") or step.get("processors")
    return [x for x in inner if isinstance(x, dict)] if isinstance(inner, list) else [step]
