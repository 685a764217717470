"""`ReplyReader`: tells the reasoning in generated text from the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .jinja import TemplateText
from .tokenizer import Tokenizer

SECTIONS = {
    "<think>": "</think>",  # Qwen, DeepSeek, GLM, Kimi, MiniMax, SmolLM and many more
    "[THINK]": "[/THINK]",  # Magistral, Ministral
    "<seed:think>": "</seed:think>",
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A
    "<|channel>": "<channel|>",  # Gemma 4
    "◁think▷": "◁/think▷",  # Kimi-VL
}
"""The text before and after reasoning, which is at the beginning of a reply."""
_CHANNEL, _MESSAGE, _START, _END = _HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>")
"""The tokens of gpt-oss' format: each message names its channel, and `analysis` is reasoning."""
_TAIL = 16
"""Tokens at the end of a prompt that may begin the reasoning."""


class ReplyPart(NamedTuple):
    """A part of a reply."""

    text: str
    is_reasoning: bool  # reasoning, or a marker of it


class ReplyReader:
    """Takes the tokens of one reply and their text as they are generated; `content` and
    `reasoning` are for the conversation.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        names = {i: str(tokenizer.engine.id_to_token(i)) for i in tokenizer.control_ids}
        self._control = names
        self._has_channels = {_CHANNEL, _MESSAGE} <= set(names.values())
        tail = tokenizer.decode(prompt[-_TAIL:], keep_special_tokens=True).rstrip()
        self._end = (
            ""
            if self._has_channels
            else next((end for begin, end in SECTIONS.items() if tail.endswith(begin)), "")
        )
        self._is_beginning, self._buffer, self._unseen = not self._end, "", ""
        self._in_header, self._header = self._has_channels and not tail.endswith(_MESSAGE), ""
        self._is_reasoning = False
        self._skips_space = False
        self._whole: list[str] = []
        self._parts: list[ReplyPart] = []

    def add(self, token: int, text: str) -> list[ReplyPart]:
        """Return the parts that a token completes."""
        name = self._control.get(token, "")
        self._whole.append(TemplateText(text) if name and text == name else text)
        if self._has_channels:
            return self._keep(self._add_to_channel(name, text))
        if name and name not in text and (name in SECTIONS or name == self._end):
            text, self._unseen = text + name, name  # a special token has no text
        self._buffer += text
        return self._keep(self._scan())

    def flush(self) -> list[ReplyPart]:
        """Return what could have become a marker."""
        rest, self._buffer = self._buffer, ""
        return self._keep([ReplyPart(rest, bool(self._end))] if rest else [])

    @property
    def content(self) -> str:
        """The text of the reply for the conversation: with its markers, as templates expect it,
        but only the answer of gpt-oss.
        """
        if self._has_channels:
            return "".join(x.text for x in self._parts if not x.is_reasoning)
        from .jinja.template_text import concat

        return concat(self._whole)

    @property
    def reasoning(self) -> str:
        """The reasoning of a reply in channels, which is not part of its content."""
        return "".join(x.text for x in self._parts if x.is_reasoning) if self._has_channels else ""

    def _keep(self, parts: list[ReplyPart]) -> list[ReplyPart]:
        self._parts += parts
        return parts

    def _add_to_channel(self, name: str, text: str) -> list[ReplyPart]:
        if name in _HARMONY:
            if name == _MESSAGE:
                self._in_header, self._is_reasoning = (
                    False,
                    self._header.strip().startswith("analysis"),
                )
            elif name != _CHANNEL or not self._in_header:
                self._in_header = True
            self._header = ""
            return []
        if self._in_header:
            self._header += text
            return []
        return [ReplyPart(text, self._is_reasoning)] if text else []

    def _scan(self) -> list[ReplyPart]:
        """Return the parts of the buffer that no further text can change."""
        parts: list[ReplyPart] = []

        def take(length: int, is_reasoning: bool) -> None:
            text, self._buffer = self._buffer[:length], self._buffer[length:]
            if text:
                parts.append(ReplyPart(text, is_reasoning))

        while self._buffer:
            if self._end:
                at = self._buffer.find(self._end)
                if at < 0:
                    take(len(self._buffer) - _overlap(self._buffer, self._end), True)
                    break
                take(at, True)
                self._take_marker(self._end, parts)
                self._end, self._skips_space = "", True
            elif self._skips_space:
                take(len(self._buffer) - len(self._buffer.lstrip()), True)
                self._skips_space = not self._buffer
            elif self._is_beginning:
                begun = self._buffer.lstrip()
                marker = next((x for x in SECTIONS if begun.startswith(x)), "")
                if not marker and any(x.startswith(begun) for x in SECTIONS):
                    break
                self._is_beginning = False
                if marker:
                    take(len(self._buffer) - len(begun), True)
                    self._take_marker(marker, parts)
                    self._end = SECTIONS[marker]
            else:
                take(len(self._buffer), False)
        return parts

    def _take_marker(self, marker: str, parts: list[ReplyPart]) -> None:
        self._buffer = self._buffer[len(marker) :]
        if marker == self._unseen:
            self._unseen = ""
        else:
            parts.append(ReplyPart(marker, True))


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest beginning of a marker that the text ends with."""
    return next(
        (n for n in range(min(len(marker) - 1, len(text)), 0, -1) if text.endswith(marker[:n])), 0
    )
