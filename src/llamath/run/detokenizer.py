"""Tokens become text as they come: held back while a character is unfinished, or while it could become a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

UNFINISHED = "\ufffd"
PENDING = 16
"""So many tokens are held back at most: a character has at most four bytes, and what is no text is said as such."""


class Words(Protocol):
    """What turns ids into text: a tokenizer."""

    def decode(self, ids: Sequence[int], *, marks: bool = False) -> str: ...


class Spoken:
    """The text of tokens that follow others, piece by piece."""

    def __init__(self, words: Words, before: Sequence[int] = ()) -> None:
        self._words = words
        self._known = list(before)  # tokens whose text is out, as far back as the next one's depends on them
        self._said = words.decode(self._known) if self._known else ""
        self._pending: list[int] = []

    def add(self, token: int) -> str:
        """The text that this token completes."""
        self._pending.append(token)
        text = self._ahead()
        if (not text or text.endswith(UNFINISHED)) and len(self._pending) < PENDING:
            return ""
        self._known, self._pending = self._pending, []
        self._said = self._words.decode(self._known)
        return text

    def rest(self) -> str:
        """What an unfinished character is without its end."""
        text, self._pending = self._ahead() if self._pending else "", []
        return text

    def _ahead(self) -> str:
        return self._words.decode([*self._known, *self._pending])[len(self._said) :]


class Stops:
    """Text up to the first stop string that is complete."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [x for x in stops if x]
        self._held = ""
        self.found = ""

    def add(self, text: str) -> str:
        """What is no part of a stop string, and cannot become one."""
        if not self._stops:
            return text
        self._held += text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            _, at, self.found = min(ends)
            out, self._held = self._held[:at], ""
            return out
        keep = max(self._begun(stop) for stop in self._stops)
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def rest(self) -> str:
        """What was held back, and became no stop string."""
        out, self._held = self._held, ""
        return out

    def _begun(self, stop: str) -> int:
        """How much of a stop string the text ends with."""
        return next((n for n in range(min(len(stop) - 1, len(self._held)), 0, -1) if self._held.endswith(stop[:n])), 0)
