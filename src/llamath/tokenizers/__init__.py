"""Tokenizers of checkpoints in every file format, and the chat formats of families."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .read_tokenizer import load_tokenizer
    from .tokenizer import Tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]


def __getattr__(name: str) -> Any:
    """Import the readers of files when they are used: the process that renders chat templates
    needs none.
    """
    if name == "load_tokenizer":
        from .read_tokenizer import load_tokenizer

        return load_tokenizer
    if name == "Tokenizer":
        from .tokenizer import Tokenizer

        return Tokenizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
