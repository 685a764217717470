"""Chat prompts as text and as token ids. A checkpoint's own template is never rendered, only searched for markers of known formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..utils.errors import LlamathError, nearest
from .chat_formats import CHAT_FORMATS, ROLES, ChatFormat
from .tokenizer import Tokenizer


class ChatMessage(NamedTuple):
    """A message of a conversation."""

    role: str  # system, user or assistant
    content: str


class _Part(NamedTuple):
    """A part of a rendered conversation."""

    text: str
    is_message: bool  # written by someone, not by the template


def render_chat(chat_format: ChatFormat, messages: Sequence[ChatMessage], add_generation_prompt: bool = True) -> str:
    """Return the conversation as text."""
    return "".join(x.text for x in _render_parts(chat_format, messages, add_generation_prompt))


def _render_parts(fmt: ChatFormat, messages: Sequence[ChatMessage], add_generation_prompt: bool) -> list[_Part]:
    """Return the template's text and the messages, in order."""
    _check_messages(messages)
    system = "".join(x.content for x in messages if x.role == "system")
    parts = [_Part(fmt.prefix, False)]
    if fmt.system and (system or fmt.system_preamble):
        parts += [_Part(fmt.system.before + fmt.system_preamble, False), _Part(_strip(fmt, "system", system), True)]
        parts += [_Part(fmt.system.after, False)]
    turns = [x for x in messages if x.role != "system"]
    user_turns = [i for i, x in enumerate(turns) if x.role == "user"]
    for i, turn in enumerate(turns):
        delimiters = fmt.user if turn.role == "user" else fmt.assistant
        parts.append(_Part(delimiters.before, False))
        if system and not fmt.system and i == user_turns[-1 if fmt.system_in_last_user else 0]:
            parts += [_Part(fmt.system_in_user.before, False), _Part(system, True), _Part(fmt.system_in_user.after, False)]
        parts += [_Part(_strip(fmt, turn.role, turn.content), True), _Part(delimiters.after, False)]
    if add_generation_prompt:
        parts.append(_Part(fmt.assistant.before if fmt.generation_prompt is None else fmt.generation_prompt, False))
    return parts


def encode_chat(
    chat_format: ChatFormat, tokenizer: Tokenizer, messages: Sequence[ChatMessage], add_generation_prompt: bool = True
) -> list[int]:
    """Return the conversation as ids.

    The texts between control tokens are encoded separately, as Llama's and Mistral's reference implementations do. Control tokens are all
    added tokens that contain a visible character, marked as special or not; those that are written in a message stay plain text.
    """
    control = {x.content: (token, x) for token, x in tokenizer.engine.get_added_tokens_decoder().items() if x.special or x.content.strip()}
    names = sorted(filter(None, control), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, names)) or "(?!)")
    texts, between = [""], []  # each control token is between two texts
    for part in _render_parts(chat_format, messages, add_generation_prompt):
        at = 0
        for found in () if part.is_message else pattern.finditer(part.text):
            texts[-1] += part.text[at : found.start()]
            between.append(found[0])
            texts.append("")
            at = found.end()
        texts[-1] += part.text[at:]
    ids: list[int] = []
    for i, text in enumerate(texts):
        if i:
            ids.append(control[between[i - 1]][0])
            if control[between[i - 1]][1].rstrip:
                text = text.lstrip()
        if i < len(between) and control[between[i]][1].lstrip:
            text = text.rstrip()
        if text:
            ids += tokenizer.encode_plain(text)
    return ids


def chat_stop_ids(chat_format: ChatFormat, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that end a reply, including those of the tokenizer."""
    return tokenizer.stop_ids.union(token for x in chat_format.stop_tokens if (token := tokenizer.token_id(x)) is not None)


def _check_messages(messages: Sequence[ChatMessage]) -> None:
    """Check that roles are known, and that a system message, if any, is followed by alternating user and assistant messages."""
    roles = [x.role for x in messages]
    unknown = next((role for role in roles if role not in ROLES), None)
    if unknown is not None:
        raise LlamathError(f"unknown role {unknown!r}: expected one of {', '.join(ROLES)}")
    rest = roles[1:] if roles[:1] == ["system"] else roles
    if rest != [("user", "assistant")[i % 2] for i in range(len(rest))]:
        raise LlamathError(
            f"expected alternating user and assistant messages, found {', '.join(roles)}", hint="a system message comes first"
        )


def find_chat_format(name: str) -> ChatFormat:
    """Return the chat format with this name."""
    if name in CHAT_FORMATS:
        return CHAT_FORMATS[name]
    hint = f"did you mean {near[0]}?" if (near := nearest(name, CHAT_FORMATS)) else f"known formats: {', '.join(CHAT_FORMATS)}"
    raise LlamathError(f"unknown chat format {name!r}", hint=hint)


def detect_chat_format(tokenizer: Tokenizer, template: str = "", default: str = "") -> ChatFormat | None:
    """Return the format of a checkpoint: by the markers in its template, else by its special tokens, else the default of its family."""
    for has_marker in (lambda marker: marker in template, lambda marker: tokenizer.token_id(marker) is not None):
        matching = [x for x in CHAT_FORMATS.values() if x.markers and all(map(has_marker, x.markers))]
        if matching:
            return max(matching, key=lambda x: len(x.markers))
    return CHAT_FORMATS.get(default)


def _strip(chat_format: ChatFormat, role: str, text: str) -> str:
    return text.strip() if role in chat_format.stripped_roles else text
