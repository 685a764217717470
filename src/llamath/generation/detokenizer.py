"""Streaming text from tokens: output is buffered while a character is incomplete or a stop
string may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_REPLACEMENT = "\ufffd"
_MAX_PENDING = 16
"""Tokens buffered at most: a character has at most four bytes, and bytes that are no text are
emitted as replacement characters."""


class TokenDecoder(Protocol):
    """A tokenizer, as far as streaming needs it."""

    def decode(self, ids: Sequence[int], *, keep_special_tokens: bool = False) -> str: ...


class StreamingDetokenizer:
    """Turns tokens into text one at a time; `before` are the tokens that precede them."""

    def __init__(self, decoder: TokenDecoder, before: Sequence[int] = ()) -> None:
        self._decoder = decoder
        self._context = list(before)  # emitted tokens that the text of the next one depends on
        self._context_text = decoder.decode(self._context) if self._context else ""
        self._pending: list[int] = []

    def add(self, token: int) -> str:
        """Return the text that this token completes."""
        self._pending.append(token)
        text = self._new_text()
        if (not text or text.endswith(_REPLACEMENT)) and len(self._pending) < _MAX_PENDING:
            return ""
        self._context, self._pending = self._pending, []
        self._context_text = self._decoder.decode(self._context)
        return text

    def flush(self) -> str:
        """Return the text of an incomplete character."""
        text, self._pending = self._new_text() if self._pending else "", []
        return text

    def _new_text(self) -> str:
        return self._decoder.decode([*self._context, *self._pending])[len(self._context_text) :]


class StopStringMatcher:
    """Passes text through up to the first stop string; `matched` is the stop string that was
    found.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [x for x in stops if x]
        self._buffer = ""
        self.matched = ""

    def add(self, text: str) -> str:
        """Return the text that is not part of a stop string and cannot become one."""
        if not self._stops:
            return text
        self._buffer += text
        matches = [
            (at + len(stop), at, stop)
            for stop in self._stops
            if (at := self._buffer.find(stop)) >= 0
        ]
        if matches:
            _, at, self.matched = min(matches)
            out, self._buffer = self._buffer[:at], ""
            return out
        held = max(self._partial_match(stop) for stop in self._stops)
        end = len(self._buffer) - held
        out, self._buffer = self._buffer[:end], self._buffer[end:]
        return out

    def flush(self) -> str:
        """Return the buffered text, which became no stop string."""
        out, self._buffer = self._buffer, ""
        return out

    def _partial_match(self, stop: str) -> int:
        """Length of the longest start of a stop string that the text ends with."""
        return next(
            (
                n
                for n in range(min(len(stop) - 1, len(self._buffer)), 0, -1)
                if self._buffer.endswith(stop[:n])
            ),
            0,
        )
