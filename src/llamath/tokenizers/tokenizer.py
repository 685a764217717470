"""`Tokenizer`: encodes text to token ids and decodes ids to text, for every file format."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING

from ..utils.errors import LlamathError, safe

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

_MIN_CHARACTERS_PER_SECOND = 10_000
"""A tenth of the speed of the slowest published tokenizers."""


class Tokenizer:
    """A tokenizer. Special tokens (`<s>`, `<|eot_id|>`) in a text are encoded as plain text
    unless `parse_special_tokens` is set.
    """

    time_limit = 60.0
    """Seconds that encoding may take beyond those for the length of the text; a short text takes
    milliseconds."""

    def __init__(
        self, engine: Engine, source: str, bos_id: int | None = None, stop_ids: Iterable[int] = ()
    ) -> None:
        self.engine, self.source, self.bos_id = engine, source, bos_id
        self.stop_ids = frozenset(stop_ids)  # generation stops after any of these
        engine.no_truncation()
        engine.no_padding()

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return 1 + max(self.engine.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special_tokens: bool = False
    ) -> list[int]:
        """Return the ids of a text.

        `add_special_tokens` adds those that the tokenizer puts around a text, such as `<s>`;
        `parse_special_tokens` recognizes those that are written in the text.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            found = (
                f"{safe(text[max(0, error.start - 8) : error.start + 1])!r} at character "
                f"{error.start:,}"
            )
            raise LlamathError(
                f"the text is not UTF-8: expected a character, found {found}"
            ) from None
        self.engine.encode_special_tokens = not parse_special_tokens
        with wrap_engine_errors(self.source):
            return self._encode_in_thread(text, add_special_tokens)

    def _encode_in_thread(self, text: str, add_special_tokens: bool) -> list[int]:
        """Encode in a thread, so that a file's regular expressions can be interrupted (Ctrl-C) and
        end at a time limit.

        Of the engine's functions, `encode_batch` alone releases Python's lock. A thread that is
        given up runs on until the process ends.
        """
        results: list[list[int]] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(
                    list(
                        self.engine.encode_batch([text], add_special_tokens=add_special_tokens)[
                            0
                        ].ids
                    )
                )
            except BaseException as error:  # the engine's panics are no Exception
                errors.append(error)

        thread = Thread(target=work, daemon=True)
        thread.start()
        limit = self.time_limit + len(text) / _MIN_CHARACTERS_PER_SECOND
        thread.join(max(0.0, limit))
        if thread.is_alive():
            raise LlamathError(
                f"{safe(self.source)}: expected at most {limit:,.0f} s to encode {len(text):,} "
                "characters, found it still running",
                hint="its regular expressions may be malicious: compare the file with the "
                "publisher's",
            )
        if errors:
            raise errors[0]
        return results[0]

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of a text in which no added token with a visible character is recognized,
        whether marked as special or not.

        Runs of spaces stay tokens: vocabularies such as GPT-NeoX's store them as added tokens, and
        they cannot forge anything.
        """
        ids = self.encode(text, add_special_tokens=False)
        if self.control_ids.isdisjoint(ids):
            return ids
        engine, self.engine = self.engine, self._plain_engine
        try:
            ids = self.encode(text, add_special_tokens=False)
        finally:
            self.engine = engine
        if not self.control_ids.isdisjoint(ids):
            found = self.engine.id_to_token(next(x for x in ids if x in self.control_ids))
            raise LlamathError(
                f"{safe(self.source)}: the control token {safe(str(found))} is written in a "
                "message and cannot be encoded as plain text",
                hint="remove it from the message",
            )
        return ids

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """The ids of the added tokens that contain a visible character."""
        return frozenset(
            i
            for i, x in self.engine.get_added_tokens_decoder().items()
            if x.special or x.content.strip()
        )

    @cached_property
    def _plain_engine(self) -> Engine:
        """A copy of the engine without these added tokens; its model has them under names that
        no text contains.
        """
        from tokenizers import Tokenizer as Engine

        with wrap_engine_errors(self.source):
            data = json.loads(self.engine.to_str())
            control = {x["content"] for x in data["added_tokens"] if x["id"] in self.control_ids}
            data["added_tokens"] = [
                x for x in data["added_tokens"] if x["id"] not in self.control_ids
            ]
            data["post_processor"] = None
            model = data["model"]
            hidden = {text: f"\0{secrets.token_hex(16)}" for text in control}
            hidden.pop(model.get("unk_token"), None)
            if isinstance(model["vocab"], dict):
                model["vocab"] = {hidden.get(text, text): i for text, i in model["vocab"].items()}
            else:
                model["vocab"] = [[hidden.get(text, text), score] for text, score in model["vocab"]]
            if "merges" in model:
                pairs = (x.split(" ", 1) if isinstance(x, str) else x for x in model["merges"])
                model["merges"] = [x for x in pairs if hidden.keys().isdisjoint((*x, "".join(x)))]
            return Engine.from_str(json.dumps(data))

    def decode(self, ids: Sequence[int], *, keep_special_tokens: bool = False) -> str:
        """Return the text of these ids, without special tokens unless they are kept."""
        with wrap_engine_errors(self.source):
            return str(self.engine.decode(list(ids), skip_special_tokens=not keep_special_tokens))

    def decode_stream(
        self, prefix: Sequence[int] = (), *, keep_special_tokens: bool = False
    ) -> Callable[[int], str]:
        """Return a function from the next id to the text that it completes, which is empty while
        a character is incomplete.
        """
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(ids=list(prefix), skip_special_tokens=not keep_special_tokens)

        def decode_next(token: int) -> str:
            with wrap_engine_errors(self.source):
                return stream.step(self.engine, token) or ""

        return decode_next

    def token_id(self, text: str) -> int | None:
        """Return the id of a token by its text."""
        token_id = self.engine.token_to_id(text)
        return None if token_id is None else int(token_id)


@contextmanager
def wrap_engine_errors(source: str) -> Iterator[None]:
    """Raise LlamathError for everything that the `tokenizers` library raises for an invalid
    file, panics included.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, LlamathError):
        raise
    except BaseException as error:
        reason = safe(str(error).strip() or type(error).__name__)
        raise LlamathError(
            f"{safe(source)}: the tokenizer cannot be used: {reason}",
            hint="check that the file is complete and belongs to this model",
        ) from None
