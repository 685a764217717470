"""Chat prompts as text and as token ids: by a named format, or by the template that a checkpoint
was published with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..utils.errors import LlamathError, nearest, safe
from .chat_formats import CHAT_FORMATS, ROLES, ChatFormat
from .control_tokens import ControlTokens, token_at_start
from .jinja import origin_runs
from .model_template import ModelTemplate
from .tokenizer import Tokenizer


class ChatMessage(NamedTuple):
    """A message of a conversation."""

    role: str  # system, user or assistant
    content: str


Message = ChatMessage | Mapping[str, Any]
"""A message of text, or with everything that a model's own template may read: tool calls,
reasoning, several parts."""
Prompting = ChatFormat | ModelTemplate
"""How a conversation becomes a prompt."""


class _Part(NamedTuple):
    """A part of a rendered conversation."""

    text: str
    is_message: bool  # written by someone, not by the template


def render_chat(
    form: Prompting, messages: Sequence[Message], add_generation_prompt: bool = True
) -> str:
    """Return the conversation as text."""
    return "".join(x.text for x in _render_parts(form, messages, add_generation_prompt))


def _render_parts(
    form: Prompting, messages: Sequence[Message], add_generation_prompt: bool
) -> list[_Part]:
    """Return the template's text and that of the messages, in order."""
    if isinstance(form, ModelTemplate):
        text = form.render(
            [x._asdict() if isinstance(x, ChatMessage) else x for x in messages],
            add_generation_prompt,
        )
        return [_Part(run, not from_template) for run, from_template in origin_runs(text)]
    return _format_parts(form, [_text_message(form, x) for x in messages], add_generation_prompt)


def _text_message(fmt: ChatFormat, message: Message) -> ChatMessage:
    """Return a message of text alone."""
    if isinstance(message, ChatMessage):
        return message
    role, content = message.get("role"), message.get("content")
    others = [
        name for name, x in message.items() if name not in ("role", "content") and x is not None
    ]
    if not isinstance(role, str) or not isinstance(content, str) or others:
        found = f"the key {safe(str(others[0]), 40)}" if others else "another type"
        raise LlamathError(
            f"the chat format {fmt.name} has messages with a role and a text alone, found {found}"
        )
    return ChatMessage(role, content)


def _format_parts(
    fmt: ChatFormat, messages: Sequence[ChatMessage], add_generation_prompt: bool
) -> list[_Part]:
    """Return the text of a named format and the messages, in order."""
    _check_messages(messages)
    system = "".join(x.content for x in messages if x.role == "system")
    parts = [_Part(fmt.prefix, False)]
    if fmt.system and (system or fmt.system_preamble):
        parts += [
            _Part(fmt.system.before + fmt.system_preamble, False),
            _Part(_strip(fmt, "system", system), True),
        ]
        parts += [_Part(fmt.system.after, False)]
    turns = [x for x in messages if x.role != "system"]
    user_turns = [i for i, x in enumerate(turns) if x.role == "user"]
    for i, turn in enumerate(turns):
        delimiters = fmt.user if turn.role == "user" else fmt.assistant
        parts.append(_Part(delimiters.before, False))
        if system and not fmt.system and i == user_turns[-1 if fmt.system_in_last_user else 0]:
            parts += [
                _Part(fmt.system_in_user.before, False),
                _Part(system, True),
                _Part(fmt.system_in_user.after, False),
            ]
        parts += [_Part(_strip(fmt, turn.role, turn.content), True), _Part(delimiters.after, False)]
    if add_generation_prompt:
        parts.append(
            _Part(
                fmt.assistant.before if fmt.generation_prompt is None else fmt.generation_prompt,
                False,
            )
        )
    return parts


def encode_chat(
    form: Prompting,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    add_generation_prompt: bool = True,
) -> list[int]:
    """Return the conversation as ids.

    The texts between control tokens are encoded separately, as Llama's and Mistral's reference
    implementations do. Control tokens are all added tokens that contain a visible character, marked
    as special or not, where the template alone wrote all of their characters; those that are
    written in a message stay plain text.
    """
    control = _control_tokens(tokenizer)
    parts = _render_parts(form, messages, add_generation_prompt)
    tokens = ControlTokens(control, (x.text for x in parts if not x.is_message))
    runs: list[list[str]] = [[]]
    between: list[str] = []  # each control token is between two runs of text
    for part in parts:
        at = 0
        for start, end in () if part.is_message else tokens.find(part.text):
            runs[-1].append(part.text[at:start])
            between.append(part.text[start:end])
            runs.append([])
            at = end
        runs[-1].append(part.text[at:])
    texts = map("".join, runs)
    ids: list[int] = []
    for i, text in enumerate(texts):
        if i:
            ids.append(control[between[i - 1]].token)
            if control[between[i - 1]].strips_right:
                text = text.lstrip()
        if i < len(between) and control[between[i]].strips_left:
            text = text.rstrip()
        if text:
            ids += tokenizer.encode_plain(text)
    return ids


class _ControlToken(NamedTuple):
    """An added token with a visible character."""

    token: int
    strips_left: bool  # spaces before it belong to it
    strips_right: bool


def _control_tokens(tokenizer: Tokenizer) -> dict[str, _ControlToken]:
    added = tokenizer.engine.get_added_tokens_decoder()
    return {
        added[i].content: _ControlToken(i, added[i].lstrip, added[i].rstrip)
        for i in tokenizer.control_ids
        if added[i].content
    }


class QuestionFrame(NamedTuple):
    """The texts of a template before and after the only question of a conversation."""

    before: str
    after: str
    strips: bool  # the spaces at the ends of the question


def question_frame(form: Prompting) -> QuestionFrame | None:
    """Return the texts around any question; None if the template changes the question."""
    frames = {_frame_of(form, x) for x in (f" {_PROBE}?\n", f"\n\t{_PROBE}  {_PROBE} ")}
    frame = frames.pop()
    return None if frames or frame is None else frame


def _frame_of(form: Prompting, question: str) -> QuestionFrame | None:
    parts = [x for x in _render_parts(form, [ChatMessage("user", question)], True) if x.text]
    places = [i for i, x in enumerate(parts) if x.is_message]
    found = "".join(parts[i].text for i in places)
    if len(places) != 1 or found not in (question, question.strip()):
        return None
    before, after = (
        "".join(x.text for x in y) for y in (parts[: places[0]], parts[places[0] + 1 :])
    )
    return QuestionFrame(before, after, found != question)


def chat_stop_ids(form: Prompting, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that end a reply, including those of the tokenizer."""
    return tokenizer.stop_ids.union(
        token
        for x in chat_stop_names(form, _control_tokens(tokenizer))
        if (token := tokenizer.token_id(x)) is not None
    )


def chat_stop_names(form: Prompting, control: Iterable[str]) -> list[str]:
    """Return the control tokens that end a reply."""
    if not isinstance(form, ModelTemplate):
        return [*form.stop_tokens]
    known = _format_by_markers(lambda marker: marker in form.text)
    return [*(known.stop_tokens if known else ()), *_end_of_reply(form, control)]


_PROBE = "llamath"
"""A reply that no template changes or writes itself."""


def _end_of_reply(template: ModelTemplate, control: Iterable[str]) -> list[str]:
    """Return the control token that a template puts after a reply: at the end of a conversation,
    else before the next message.
    """
    for more in ([], [ChatMessage("user", "?")]):
        turns = [ChatMessage("user", "?"), ChatMessage("assistant", _PROBE), *more]
        try:
            parts = _render_parts(template, turns, False)
        except LlamathError:
            continue
        after = "".join(x.text for x in parts).rpartition(_PROBE)[2]
        if any(x.is_message and _PROBE in x.text for x in parts) and (
            found := token_at_start(control, after.lstrip())
        ):
            return [found]
    return []


def _check_messages(messages: Sequence[ChatMessage]) -> None:
    """Check that roles are known, and that a system message, if any, is followed by alternating
    user and assistant messages.
    """
    roles = [x.role for x in messages]
    unknown = next((role for role in roles if role not in ROLES), None)
    if unknown is not None:
        raise LlamathError(f"unknown role {unknown!r}: expected one of {', '.join(ROLES)}")
    rest = roles[1:] if roles[:1] == ["system"] else roles
    if rest != [("user", "assistant")[i % 2] for i in range(len(rest))]:
        raise LlamathError(
            f"expected alternating user and assistant messages, found {', '.join(roles)}",
            hint="a system message comes first",
        )


def find_chat_format(name: str) -> ChatFormat:
    """Return the chat format with this name."""
    if name in CHAT_FORMATS:
        return CHAT_FORMATS[name]
    hint = (
        f"did you mean {near[0]}?"
        if (near := nearest(name, CHAT_FORMATS))
        else (f"known formats: {', '.join(CHAT_FORMATS)}")
    )
    raise LlamathError(f"unknown chat format {name!r}", hint=hint)


def detect_chat_format(tokenizer: Tokenizer, default: str = "") -> ChatFormat | None:
    """Return the format of a checkpoint without a template: by its special tokens, else the
    default of its family.
    """
    return _format_by_markers(
        lambda marker: tokenizer.token_id(marker) is not None
    ) or CHAT_FORMATS.get(default)


def _format_by_markers(has_marker: Callable[[str], bool]) -> ChatFormat | None:
    """Return the format with most markers, all of which are there."""
    matching = [x for x in CHAT_FORMATS.values() if x.markers and all(map(has_marker, x.markers))]
    return max(matching, key=lambda x: len(x.markers)) if matching else None


def _strip(chat_format: ChatFormat, role: str, text: str) -> str:
    return text.strip() if role in chat_format.stripped_roles else text
