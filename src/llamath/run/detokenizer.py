"""Tokens become text as they come: held back while a character is unfinished, or while it could become a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"
MAX_PENDING = 16
"""So many tokens are held back at most: a character has at most four bytes, and what is no text is said as such."""


class TokenDecoder(Protocol):
    """What turns ids into text: a tokenizer."""

    def decode(self, ids: Sequence[int], *, keep_special_tokens: bool = False) -> str: ...


class StreamingDetokenizer:
    """The text of tokens that follow others, piece by piece."""

    def __init__(self, words: TokenDecoder, before: Sequence[int] = ()) -> None:
        self._decoder = words
        self._context = list(before)  # tokens whose text is out, as far back as the next one's depends on them
        self._context_text = words.decode(self._context) if self._context else ""
        self._pending: list[int] = []

    def add(self, token: int) -> str:
        """The text that this token completes."""
        self._pending.append(token)
        text = self._new_text()
        if (not text or text.endswith(REPLACEMENT)) and len(self._pending) < MAX_PENDING:
            return ""
        self._context, self._pending = self._pending, []
        self._context_text = self._decoder.decode(self._context)
        return text

    def flush(self) -> str:
        """What an unfinished character is without its end."""
        text, self._pending = self._new_text() if self._pending else "", []
        return text

    def _new_text(self) -> str:
        return self._decoder.decode([*self._context, *self._pending])[len(self._context_text) :]


class StopStringMatcher:
    """Text up to the first stop string that is complete."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [x for x in stops if x]
        self._buffer = ""
        self.matched = ""

    def add(self, text: str) -> str:
        """What is no part of a stop string, and cannot become one."""
        if not self._stops:
            return text
        self._buffer += text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := self._buffer.find(stop)) >= 0]
        if ends:
            _, at, self.matched = min(ends)
            out, self._buffer = self._buffer[:at], ""
            return out
        keep = max(self._partial_match(stop) for stop in self._stops)
        cut = len(self._buffer) - keep
        out, self._buffer = self._buffer[:cut], self._buffer[cut:]
        return out

    def flush(self) -> str:
        """What was held back, and became no stop string."""
        out, self._buffer = self._buffer, ""
        return out

    def _partial_match(self, stop: str) -> int:
        """How much of a stop string the text ends with."""
        return next((n for n in range(min(len(stop) - 1, len(self._buffer)), 0, -1) if self._buffer.endswith(stop[:n])), 0)
