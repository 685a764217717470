"""Conversations as text and ids. A file's own template is never rendered, only looked at for the words that tell formats apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..core.errors import LlamathError, nearest
from .chat_formats import FORMATS, ROLES, Format
from .tokenizer import Tokenizer

VEIL = 0xF0000
"""Characters for private use, that stand for special tokens inside a turn while it is put together."""


class Turn(NamedTuple):
    """What one side says."""

    role: str  # system, user or assistant
    text: str


def written(form: Format, turns: Sequence[Turn], reply: bool = True) -> str:
    """The conversation in writing, ready for the answer."""
    check(turns)
    system = "".join(turn.text for turn in turns if turn.role == "system")
    parts = [form.start]
    if form.system and (system or form.preface):
        parts += [form.system[0], form.preface, _trimmed(form, "system", system), form.system[1]]
    said = [turn for turn in turns if turn.role != "system"]
    asked = [number for number, turn in enumerate(said) if turn.role == "user"]
    for number, turn in enumerate(said):
        before, after = form.user if turn.role == "user" else form.assistant
        words = _trimmed(form, turn.role, turn.text)
        if system and not form.system and number == asked[-1 if form.late else 0]:
            words = f"{form.inside[0]}{system}{form.inside[1]}{words}"
        parts += [before, words, after]
    opening = form.assistant[0] if form.reply is None else form.reply
    return "".join([*parts, opening if reply else ""])


def ids(form: Format, tokenizer: Tokenizer, turns: Sequence[Turn], reply: bool = True) -> list[int]:
    """The conversation as ids: special tokens, and between them texts that are each encoded alone, as Llama's and Mistral's references do.

    Special tokens that somebody wrote into a turn stay text.
    """
    marks = {x.content: (token, x) for token, x in tokenizer.engine.get_added_tokens_decoder().items() if x.special}
    names = sorted(marks, key=len, reverse=True)
    veils = {mark: chr(VEIL + i) for i, mark in enumerate(names)}
    text = written(form, [Turn(turn.role, _replaced(turn.text, veils)) for turn in turns], reply)
    parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
    found: list[int] = []
    for i, part in enumerate(parts):
        if i % 2:
            found.append(marks[part][0])
            continue
        if i and marks[parts[i - 1]][1].rstrip:
            part = part.lstrip()
        if i + 1 < len(parts) and marks[parts[i + 1]][1].lstrip:
            part = part.rstrip()
        found += tokenizer.encode(_replaced(part, {veil: mark for mark, veil in veils.items()}), start=False) if part else []
    return found


def stops(form: Format, tokenizer: Tokenizer) -> frozenset[int]:
    """The ids after which a reply is over, the tokenizer's own among them."""
    return tokenizer.stop.union(token for mark in form.stop if (token := tokenizer.mark(mark)) is not None)


def check(turns: Sequence[Turn]) -> None:
    """A conversation: known roles, the system first and once, then user and assistant in turn."""
    said = [turn.role for turn in turns]
    strange = next((role for role in said if role not in ROLES), None)
    if strange is not None:
        raise LlamathError(f"expected turns of {', '.join(ROLES)}, found {strange!r}")
    rest = said[1:] if said[:1] == ["system"] else said
    if rest != [("user", "assistant")[i % 2] for i in range(len(rest))]:
        raise LlamathError(
            f"expected a conversation of user and assistant in turn, found {', '.join(said)}", hint="system, if any, comes first"
        )


def find(name: str) -> Format:
    """A format by name."""
    if name in FORMATS:
        return FORMATS[name]
    hint = f"did you mean {found[0]}?" if (found := nearest(name, FORMATS)) else f"known are {', '.join(FORMATS)}"
    raise LlamathError(f"no chat format is called {name!r}", hint=hint)


def recognise(tokenizer: Tokenizer, template: str = "", usual: str = "") -> Format | None:
    """The format of a checkpoint: by the words of its template, else by its special tokens, else its family's `usual` one."""
    for known in (lambda sign: sign in template, lambda sign: tokenizer.mark(sign) is not None):
        fitting = [x for x in FORMATS.values() if x.signs and all(map(known, x.signs))]
        if fitting:
            return max(fitting, key=lambda x: len(x.signs))
    return FORMATS.get(usual)


def _trimmed(form: Format, role: str, text: str) -> str:
    return text.strip() if role in form.trim else text


def _replaced(text: str, words: dict[str, str]) -> str:
    for word, other in words.items():
        text = text.replace(word, other)
    return text
