"""The small model that the package brings, beside this file: a Llama that knows a little world; its README says which."""

from __future__ import annotations

import os

MODEL_NAME = "embedded"
"""What it is called wherever a model or a checkpoint is asked for."""


def path() -> str:
    """The folder of its files, in Hugging Face's format."""
    return os.path.dirname(__file__)


def named(text: str) -> str:
    """The place that a text names: its folder for `embedded`, unless something of that name is there; else the text itself."""
    return path() if text == MODEL_NAME and not os.path.lexists(text) else text
