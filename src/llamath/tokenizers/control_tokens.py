"""`ControlTokens`: find the longest added token at each position of a text, in steps that grow with
the text and the tokens alone.

The names of tokens are read backwards into an Aho-Corasick automaton, and then the text: after each
character, its state tells the longest token that begins there. Only names whose ends occur in the
text become part of it, so that thousands of added tokens cost little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..utils.errors import LlamathError

_END_LENGTH = 8
"""Characters of a name's first and last part that are looked up in the text before the whole."""
_MAX_CHARACTERS = 1 << 20
"""The most characters of names that are searched for in one text; each takes some hundred bytes."""


class ControlTokens:
    """The names of added tokens that may occur in some texts."""

    def __init__(self, names: Iterable[str], texts: Iterable[str]) -> None:
        # characters of names and texts that were read, and failures that were followed
        self.steps = 0
        self._after: dict[tuple[int, str], int] = {}
        self._failures, self._longest = [0], [0]
        self._add(self._candidates(frozenset(filter(None, names)), "".join(texts)))

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each token from the left, the longest where several begin."""
        if not self._after:
            return
        lengths, at = self._lengths(text), 0
        while at < len(text):
            if lengths[at]:
                yield at, at + lengths[at]
            at += lengths[at] or 1

    def _lengths(self, text: str) -> list[int]:
        """Return the length of the longest token at each position of a text."""
        lengths, state = [0] * len(text), 0
        for i in range(len(text) - 1, -1, -1):
            char = text[i]
            self.steps += 1
            while state and (state, char) not in self._after:
                state = self._failures[state]
                self.steps += 1
            state = self._after.get((state, char), 0)
            lengths[i] = self._longest[state]
        return lengths

    def _candidates(self, names: frozenset[str], text: str) -> list[str]:
        """Return the names whose first and last characters occur in a text."""
        lengths = {min(len(x), _END_LENGTH) for x in names}
        parts = {n: {text[i : i + n] for i in range(len(text) - n + 1)} for n in lengths}
        self.steps += len(text) * len(lengths) + len(names)
        found = [
            x
            for x in names
            if x[:_END_LENGTH] in (known := parts[min(len(x), _END_LENGTH)])
            and x[-_END_LENGTH:] in known
        ]
        if sum(map(len, found)) > _MAX_CHARACTERS:
            raise LlamathError(
                f"expected added tokens of at most {_MAX_CHARACTERS:,} characters to search for "
                "in the text of a chat template, found more",
                hint="compare the tokenizer's file with the publisher's",
            )
        return found

    def _add(self, names: list[str]) -> None:
        """Add the reversed names, and for each state that of the longest proper end of its text:
        if it fails, reading goes on there.
        """
        parents = [(0, "")]
        for name in names:
            state = 0
            for char in reversed(name):
                self.steps += 1
                found = self._after.get((state, char))
                if found is None:
                    found = self._after[state, char] = len(parents)
                    parents.append((state, char))
                state = found
            self._longest += [0] * (len(parents) - len(self._longest))
            self._longest[state] = len(name)
        depths = [0] * len(parents)
        for state, (parent, _) in enumerate(parents[1:], 1):  # a parent has a lower number
            depths[state] = depths[parent] + 1
        self._failures = [0] * len(parents)
        for state in sorted(range(1, len(parents)), key=depths.__getitem__):
            parent, char = parents[state]
            if parent:
                at = self._failures[parent]
                while at and (at, char) not in self._after:
                    at = self._failures[at]
                    self.steps += 1
                self._failures[state] = self._after.get((at, char), 0)
            self._longest[state] = self._longest[state] or self._longest[self._failures[state]]


def token_at_start(names: Iterable[str], text: str) -> str:
    """Return the longest of these tokens at the start of a text, or an empty string."""
    return max(filter(text.startswith, names), key=len, default="")
