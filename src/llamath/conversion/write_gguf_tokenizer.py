"""GGUF's metadata of a tokenizer, where llama.cpp is known to make the same tokens of it.

llama.cpp's `llama` vocabulary is sentencepiece's BPE; of its `gpt2` vocabularies, `llama-bpe` and `qwen2` are told by how the text is cut
before it is merged (llama-vocab.cpp). Anything else gets no tokenizer, which the file then says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..checkpoint.formats.gguf_values import BOOL, FLOAT32, INT32, STRING, UINT32
from ..core.errors import LlamathError
from ..core.strict_json import parse_json, read_json
from .copy_tokenizer import CONTROL, NORMAL, UNUSED, USER, count_tiktoken_ranks, read_tokenizer_file, sentencepiece
from .write_gguf_keys import Key

PREFIX = "tokenizer.ggml"
_CUT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_CPP_PRETOKENIZERS = {_CUT % "{1,3}": ("llama-bpe", True), _CUT % "": ("qwen2", False)}
"""How the text is cut → llama.cpp's name for it, and whether whole words that are tokens are left unmerged."""
ADDED, ABSENT = -1000.0, -10000.0
IDS = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}


class _TokenTable(NamedTuple):
    """Tokens by number, with their scores (none in byte-level BPE) and kinds."""

    texts: list[bytes]
    scores: list[float]
    kinds: list[int]

    def set(self, number: int, text: bytes, score: float, kind: int) -> None:
        """Say what one token is; a number beyond the vocabulary is no token of the model's."""
        if not 0 <= number < len(self.texts):
            raise _UnsupportedTokenizer(f"it has a token {number:,} and the model {len(self.texts):,} rows")
        self.texts[number], self.scores[number], self.kinds[number] = text, score, kind


class _UnsupportedTokenizer(LlamathError):
    """A tokenizer of which llama.cpp might make other tokens."""


def tokenizer_metadata(files: Mapping[str, str], vocab: int, notes: list[str]) -> list[Key]:
    """The tokenizer's metadata, or that there is none, and why."""
    try:
        said = read_json(files["tokenizer_config.json"]) if "tokenizer_config.json" in files else {}
        data = read_tokenizer_file(files["tokenizer.model"]) if "tokenizer.model" in files else b""
        if data and count_tiktoken_ranks(data) is None:
            return _sentencepiece(data, files, said, vocab)
        if "tokenizer.json" in files:
            return _byte_level(files, said, vocab)
        raise _UnsupportedTokenizer(
            "it is tiktoken's, and does not say its special tokens" if data else "there is none beside the checkpoint"
        )
    except LlamathError as error:
        notes.append(f"the GGUF file has no tokenizer: {error}")
        return [Key(f"{PREFIX}.model", STRING, "none")]


def _sentencepiece(data: bytes, files: Mapping[str, str], said: Mapping[str, Any], vocab: int) -> list[Key]:
    model = sentencepiece(data)
    if not model.bpe:
        raise _UnsupportedTokenizer("its sentencepiece model is not of the merging kind (BPE)")
    table = _empty(vocab)
    for i, piece in enumerate(model.pieces):
        table.set(i, *piece)
    added = (
        {token: i for token, i in read_json(files["added_tokens.json"]).items() if isinstance(i, int)}
        if "added_tokens.json" in files
        else {}
    )
    for token, i in added.items():
        table.set(i, token.encode(), ADDED, USER)
    for number, facts in _decoder(said).items():
        i, text = int(number), str(facts.get("content", ""))
        if table.texts[i : i + 1] != [text.encode()] or text in added:
            table.set(i, text.replace("▁", " ").encode(), ADDED, CONTROL if facts.get("special") else USER)
    prefix = said.get("add_prefix_space")
    first = [Key(f"{PREFIX}.model", STRING, "llama"), Key(f"{PREFIX}.pre", STRING, "default")]
    first += [Key(f"{PREFIX}.add_space_prefix", BOOL, prefix if isinstance(prefix, bool) else model.dummy_prefix)]
    scores = Key(f"{PREFIX}.scores", FLOAT32, table.scores, True)
    starts = {"bos": said.get("add_bos_token", True), "eos": said.get("add_eos_token", False)}
    return [*first, *_tokens(table), scores, *_special(table, dict(model.ids), said, starts), *_template(files, said)]


def _byte_level(files: Mapping[str, str], said: Mapping[str, Any], vocab: int) -> list[Key]:
    data = parse_json(read_tokenizer_file(files["tokenizer.json"]), "tokenizer.json", times=4)
    model: Mapping[str, Any] = data.get("model") or {}
    cuts = [x.get("pattern", {}).get("Regex") for x in _steps(data.get("pre_tokenizer")) if x.get("type") == "Split"]
    name, whole = LLAMA_CPP_PRETOKENIZERS.get(cuts[0] if len(cuts) == 1 else "", ("", False))
    if model.get("type") != "BPE" or not name or bool(model.get("ignore_merges")) != whole:
        raise _UnsupportedTokenizer("its tokenizer.json is of a kind of which llama.cpp's tokens are not known to be the same")
    table = _empty(vocab)
    for text, i in model["vocab"].items():
        table.set(i, text.encode(), 0.0, NORMAL)
    for token in data.get("added_tokens", ()):
        table.set(token["id"], token["content"].encode(), 0.0, CONTROL if token.get("special") else USER)
    merges = [x if isinstance(x, str) else " ".join(x) for x in model["merges"]]
    if any(x.count(" ") != 1 for x in merges):
        raise _UnsupportedTokenizer("its merges have spaces in them")
    first = [Key(f"{PREFIX}.model", STRING, "gpt2"), Key(f"{PREFIX}.pre", STRING, name)]
    begins = [step["single"][0].get("SpecialToken", {}).get("id") for step in _steps(data.get("post_processor")) if step.get("single")]
    starts = {"bos": any(begins), "eos": False}
    special = _special(table, {}, {"bos_token": begins[0], **said} if any(begins) else said, starts)
    return [*first, *_tokens(table), Key(f"{PREFIX}.merges", STRING, merges, True), *special, *_template(files, said)]


def _empty(vocab: int) -> _TokenTable:
    return _TokenTable([b"[PAD%d]" % i for i in range(vocab)], [ABSENT] * vocab, [UNUSED] * vocab)


def _tokens(table: _TokenTable) -> list[Key]:
    return [Key(f"{PREFIX}.tokens", STRING, table.texts, True), Key(f"{PREFIX}.token_type", INT32, table.kinds, True)]


def _special(table: _TokenTable, ids: dict[str, int], said: Mapping[str, Any], starts: Mapping[str, Any]) -> list[Key]:
    """The numbers of the special tokens, as the configuration names them, and which of them a text begins and ends with."""
    for word in IDS:
        token = said.get(f"{word}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text.encode() in table.texts:
            ids[word] = table.texts.index(text.encode())
    numbers = [Key(f"{PREFIX}.{key}", UINT32, ids[word]) for word, key in IDS.items() if word in ids]
    return numbers + [Key(f"{PREFIX}.add_{word}_token", BOOL, bool(value)) for word, value in starts.items()]


def _template(files: Mapping[str, str], said: Mapping[str, Any]) -> list[Key]:
    """The chat template, inert text here as everywhere."""
    text = read_tokenizer_file(files["chat_template.jinja"]).decode() if "chat_template.jinja" in files else said.get("chat_template")
    return [Key("tokenizer.chat_template", STRING, text)] if isinstance(text, str) else []


def _decoder(said: Mapping[str, Any]) -> dict[str, Any]:
    found = said.get("added_tokens_decoder")
    return {i: x for i, x in found.items() if i.isdecimal() and isinstance(x, dict)} if isinstance(found, dict) else {}


def _steps(step: Any) -> list[dict[str, Any]]:
    """The steps of a sequence, or the one step that there is."""
    if not isinstance(step, dict):
        return []
    inner = step.get("pretokenizers") or step.get("processors")
    return [x for x in inner if isinstance(x, dict)] if isinstance(inner, list) else [step]
