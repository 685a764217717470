"""The small model that is part of the package: a Llama trained on stories of a small world; see
its README.
"""

from __future__ import annotations

import os

MODEL_NAME = "embedded"
"""The name that users write in place of a model or checkpoint."""


def path() -> str:
    """Return the folder of its files, in Hugging Face's format."""
    return os.path.dirname(__file__)


def resolve_name(text: str) -> str:
    """Return the folder of the embedded model for `embedded`, unless a file of that name exists;
    other texts are returned unchanged.
    """
    return path() if text == MODEL_NAME and not os.path.lexists(text) else text
