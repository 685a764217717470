"""Text and tokens: tokenizers from every file that brings one, and the formats in which families hold a conversation."""

from __future__ import annotations

from .read_tokenizer import load_tokenizer
from .tokenizer import Tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]
