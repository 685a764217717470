"""Chat prompts as text and as token ids. A checkpoint's own template is never rendered, only searched for markers of known formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..core.errors import LlamathError, nearest
from .chat_formats import CHAT_FORMATS, ROLES, ChatFormat
from .tokenizer import Tokenizer

_PLACEHOLDER = 0xF0000
"""The first of the private-use characters that stand for special tokens in a message while the prompt is put together."""


class ChatMessage(NamedTuple):
    """A message of a conversation."""

    role: str  # system, user or assistant
    content: str


def render_chat(chat_format: ChatFormat, messages: Sequence[ChatMessage], add_generation_prompt: bool = True) -> str:
    """Return the conversation as text."""
    _check_messages(messages)
    fmt = chat_format
    system = "".join(x.content for x in messages if x.role == "system")
    parts = [fmt.prefix]
    if fmt.system and (system or fmt.system_preamble):
        parts += [fmt.system.before, fmt.system_preamble, _strip(fmt, "system", system), fmt.system.after]
    turns = [x for x in messages if x.role != "system"]
    user_turns = [i for i, x in enumerate(turns) if x.role == "user"]
    for i, turn in enumerate(turns):
        delimiters = fmt.user if turn.role == "user" else fmt.assistant
        text = _strip(fmt, turn.role, turn.content)
        if system and not fmt.system and i == user_turns[-1 if fmt.system_in_last_user else 0]:
            text = f"{fmt.system_in_user.before}{system}{fmt.system_in_user.after}{text}"
        parts += [delimiters.before, text, delimiters.after]
    if add_generation_prompt:
        parts.append(fmt.assistant.before if fmt.generation_prompt is None else fmt.generation_prompt)
    return "".join(parts)


def encode_chat(
    chat_format: ChatFormat, tokenizer: Tokenizer, messages: Sequence[ChatMessage], add_generation_prompt: bool = True
) -> list[int]:
    """Return the conversation as ids.

    The texts between special tokens are encoded separately, as Llama's and Mistral's reference implementations do. Special tokens that are
    written in a message stay plain text.
    """
    special = {x.content: (token, x) for token, x in tokenizer.engine.get_added_tokens_decoder().items() if x.special}
    names = sorted(special, key=len, reverse=True)
    placeholders = {name: chr(_PLACEHOLDER + i) for i, name in enumerate(names)}
    names_by_placeholder = {placeholder: name for name, placeholder in placeholders.items()}
    hidden = [ChatMessage(x.role, _replace_all(x.content, placeholders)) for x in messages]
    text = render_chat(chat_format, hidden, add_generation_prompt)
    parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
    ids: list[int] = []
    for i, part in enumerate(parts):
        if i % 2:
            ids.append(special[part][0])
            continue
        if i and special[parts[i - 1]][1].rstrip:
            part = part.lstrip()
        if i + 1 < len(parts) and special[parts[i + 1]][1].lstrip:
            part = part.rstrip()
        if part:
            ids += tokenizer.encode(_replace_all(part, names_by_placeholder), add_special_tokens=False)
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


def _replace_all(text: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text
