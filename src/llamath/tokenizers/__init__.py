"""Tokenizers of checkpoints in every file format, and the chat formats of families."""

from __future__ import annotations

from .read_tokenizer import load_tokenizer
from .tokenizer import Tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]
