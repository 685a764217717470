"""The tokenizer in a GGUF file (`tokenizer.ggml.*`): sentencepiece's pieces or byte-level BPE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..checkpoint.formats.gguf_values import Array, values
from ..checkpoint.formats.manifest import Manifest
from ..checkpoint.formats.sentencepiece import NORMAL
from ..checkpoint.formats.source import Source
from ..core.errors import FormatError, nearest, safe
from .pretokenizers import GGUF_PRETOKENIZERS, IGNORE_MERGES, SPLIT_PATTERNS
from .tokenizer import Tokenizer, wrap_engine_errors
from .vocabulary_engines import SpaceHandling, VocabularyPiece, add_bos_and_eos, build_byte_level, build_sentencepiece

_MAX_TOKENS = 1 << 20
"""The largest vocabulary that is read; the largest published one has about 260,000 tokens."""


class _TokenizerMetadata:
    """The metadata under `tokenizer.ggml.`; arrays are read on demand."""

    def __init__(self, source: Source, metadata: dict[str, Any]) -> None:
        self.source, self.metadata = source, metadata

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value that is not an array."""
        found = self.metadata.get(f"tokenizer.ggml.{key}", default)
        return default if isinstance(found, Array) else found

    def array(self, key: str, limit: int = _MAX_TOKENS) -> Iterator[Any]:
        """Iterate over the elements of an array; absent, there are none."""
        found = self.metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(found, Array) and found.count > limit:
            raise self.error(f"at most {limit:,} {key}", f"{found.count:,}")
        return values(self.source, found) if isinstance(found, Array) else iter(())

    def token_id(self, key: str, size: int) -> int | None:
        """Return the id of a special token if it is in the vocabulary."""
        found = self.get(f"{key}_token_id")
        return found if isinstance(found, int) and 0 <= found < size else None

    def error(self, expected: str, found: object, hint: str = "") -> FormatError:
        """Make the error for an invalid vocabulary."""
        return FormatError("tokenizer", f"{safe(self.source.name)}: tokenizer.ggml: expected {expected}, found {found}", hint=hint)


def read_gguf_tokenizer(source: Source, manifest: Manifest) -> Tokenizer:
    """Return the tokenizer of the file."""
    vocabulary = _TokenizerMetadata(source, dict(manifest.metadata))
    pieces, model = _read_pieces(vocabulary), vocabulary.get("model")
    with wrap_engine_errors(source.name):
        if model == "gpt2":
            engine, adds_bos = _build_byte_level(vocabulary, pieces), vocabulary.get("pre") in IGNORE_MERGES
        elif model in ("llama", "t5"):
            spaces = SpaceHandling(
                bool(vocabulary.get("add_space_prefix", True)), bool(vocabulary.get("remove_extra_whitespaces", model == "t5"))
            )
            engine, adds_bos = build_sentencepiece(pieces, spaces, model == "t5", source.name), model == "llama"
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
    for name, found in (("scores", scores), ("token_type", types)):
        if found and len(found) != len(texts):
            raise vocabulary.error(f"{len(texts):,} {name}, one for each token", f"{len(found):,}")
    if not texts or len(set(texts)) != len(texts):
        problem = f"{len(texts):,}, with repetitions" if texts else "none"
        raise vocabulary.error("distinct tokens", problem, "put the model's tokenizer.json in the same folder")
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
        hint = f"nearest known: {', '.join(near)}" if near else "put the model's tokenizer.json in the same folder"
        raise vocabulary.error("a known pre-tokenizer (pre)", safe(repr(pre)), hint)
    return build_byte_level(pieces, merges, SPLIT_PATTERNS[GGUF_PRETOKENIZERS[pre]], ignore_merges=pre in IGNORE_MERGES)
