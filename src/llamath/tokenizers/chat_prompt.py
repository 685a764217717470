"""Conversations as text and ids. A file's own template is never rendered, only looked at for the words that tell formats apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..core.errors import LlamathError, nearest
from .chat_formats import CHAT_FORMATS, ROLES, ChatFormat
from .tokenizer import Tokenizer

_PLACEHOLDER = 0xF0000
"""Characters for private use, that stand for special tokens inside a turn while it is put together."""


class ChatMessage(NamedTuple):
    """What one side says."""

    role: str  # system, user or assistant
    content: str


def render_chat(chat_format: ChatFormat, messages: Sequence[ChatMessage], add_generation_prompt: bool = True) -> str:
    """The conversation in writing, ready for the answer."""
    check_messages(messages)
    system = "".join(turn.content for turn in messages if turn.role == "system")
    parts = [chat_format.prefix]
    if chat_format.system and (system or chat_format.system_preamble):
        parts += [chat_format.system[0], chat_format.system_preamble, _strip(chat_format, "system", system), chat_format.system[1]]
    said = [turn for turn in messages if turn.role != "system"]
    asked = [number for number, turn in enumerate(said) if turn.role == "user"]
    for number, turn in enumerate(said):
        before, after = chat_format.user if turn.role == "user" else chat_format.assistant
        words = _strip(chat_format, turn.role, turn.content)
        if system and not chat_format.system and number == asked[-1 if chat_format.system_in_last_user else 0]:
            words = f"{chat_format.system_in_user[0]}{system}{chat_format.system_in_user[1]}{words}"
        parts += [before, words, after]
    opening = chat_format.assistant[0] if chat_format.generation_prompt is None else chat_format.generation_prompt
    return "".join([*parts, opening if add_generation_prompt else ""])


def encode_chat(
    chat_format: ChatFormat, tokenizer: Tokenizer, messages: Sequence[ChatMessage], add_generation_prompt: bool = True
) -> list[int]:
    """The conversation as ids: special tokens, and between them texts that are each encoded alone, as Llama's and Mistral's references do.

    Special tokens that somebody wrote into a turn stay text.
    """
    marks = {x.content: (token, x) for token, x in tokenizer.engine.get_added_tokens_decoder().items() if x.special}
    names = sorted(marks, key=len, reverse=True)
    veils = {mark: chr(_PLACEHOLDER + i) for i, mark in enumerate(names)}
    text = render_chat(chat_format, [ChatMessage(turn.role, _replace_all(turn.content, veils)) for turn in messages], add_generation_prompt)
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
        found += (
            tokenizer.encode(_replace_all(part, {veil: mark for mark, veil in veils.items()}), add_special_tokens=False) if part else []
        )
    return found


def chat_stop_ids(chat_format: ChatFormat, tokenizer: Tokenizer) -> frozenset[int]:
    """The ids after which a reply is over, the tokenizer's own among them."""
    return tokenizer.stop_ids.union(token for mark in chat_format.stop_tokens if (token := tokenizer.token_id(mark)) is not None)


def check_messages(messages: Sequence[ChatMessage]) -> None:
    """A conversation: known roles, the system first and once, then user and assistant in turn."""
    said = [turn.role for turn in messages]
    strange = next((role for role in said if role not in ROLES), None)
    if strange is not None:
        raise LlamathError(f"expected turns of {', '.join(ROLES)}, found {strange!r}")
    rest = said[1:] if said[:1] == ["system"] else said
    if rest != [("user", "assistant")[i % 2] for i in range(len(rest))]:
        raise LlamathError(
            f"expected a conversation of user and assistant in turn, found {', '.join(said)}", hint="system, if any, comes first"
        )


def find_chat_format(name: str) -> ChatFormat:
    """A format by name."""
    if name in CHAT_FORMATS:
        return CHAT_FORMATS[name]
    hint = f"did you mean {found[0]}?" if (found := nearest(name, CHAT_FORMATS)) else f"known are {', '.join(CHAT_FORMATS)}"
    raise LlamathError(f"no chat format is called {name!r}", hint=hint)


def detect_chat_format(tokenizer: Tokenizer, template: str = "", default: str = "") -> ChatFormat | None:
    """The format of a checkpoint: by the words of its template, else by its special tokens, else its family's `usual` one."""
    for known in (lambda sign: sign in template, lambda sign: tokenizer.token_id(sign) is not None):
        fitting = [x for x in CHAT_FORMATS.values() if x.markers and all(map(known, x.markers))]
        if fitting:
            return max(fitting, key=lambda x: len(x.markers))
    return CHAT_FORMATS.get(default)


def _strip(form: ChatFormat, role: str, text: str) -> str:
    return text.strip() if role in form.stripped_roles else text


def _replace_all(text: str, words: dict[str, str]) -> str:
    for word, other in words.items():
        text = text.replace(word, other)
    return text
