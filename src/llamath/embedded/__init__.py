"""The small model that is part of the package: a Llama trained on stories of a small world; see its README."""

from __future__ import annotations

import os

MODEL_NAME = "embedded"
"""Its name in place of a model or checkpoint."""


def path() -> str:
    """Return the folder of its files, in Hugging Face's format."""
    return os.path.dirname(__file__)


def named(text: str) -> str:
    """Return its folder for `embedded`, unless a file of that name exists; any other text unchanged."""
    return path() if text == MODEL_NAME and not os.path.lexists(text) else text
