"""The tokens of a sequence where no number is given: one default for `memory`, `fit`, `plan`,
`flops` and the page.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...utils.errors import LlamathError

DEFAULT_CONTEXT = 8192
"""Tokens of a sequence, if the model supports as many."""


def default_context(tree: Decoder) -> int:
    """Return the default number of tokens of a sequence: at most the context of the model."""
    return min(int(tree.context or DEFAULT_CONTEXT), DEFAULT_CONTEXT)


def full_context(tree: Decoder) -> int:
    """Return the model's own context, `--context max`."""
    if tree.context is None:
        raise LlamathError(
            "context max: this model states no context", hint="a number of tokens, such as 32k"
        )
    return int(tree.context)
