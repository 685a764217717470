"""Replies on their way to the terminal: reasoning is dimmed, or hidden on request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..render.table import dim
from ..tokenizers.thinking import ReplyPart, ReplyReader
from .generation_options import write

if TYPE_CHECKING:
    from ..generation.generation import GeneratedPiece, Generation
    from ..generation.session import LlamaBase


class ReplyWriter:
    """Writes the pieces of one reply to stdout as they come."""

    def __init__(
        self,
        llama: LlamaBase,
        generation: Generation,
        *,
        hides_thinking: bool,
        is_silent: bool = False,
    ) -> None:
        self.reader = ReplyReader(llama.tokenizer, generation.rows[0].prompt)
        self.hides_thinking, self.is_silent = hides_thinking, is_silent
        self.text = ""

    def __call__(self, piece: GeneratedPiece) -> None:
        """Write the parts of a piece; the last one is what was held back."""
        self._write(self.reader.add(piece.token, piece.text))
        if piece.finish:
            self._write(self.reader.flush())

    def _write(self, parts: list[ReplyPart]) -> None:
        for part in parts:
            if part.is_reasoning and self.hides_thinking:
                continue
            self.text += part.text
            if not self.is_silent:
                write(part.text, style=dim if part.is_reasoning and sys.stdout.isatty() else str)
