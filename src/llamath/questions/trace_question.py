"""The question of a trace: which steps of which forward pass."""

from __future__ import annotations

from typing import ClassVar

from ..utils.errors import LlamathError
from .settings import Question, ask
from .shared_fields import IMAGES
from .value_kinds import TOKENS, YES_OR_NO, Kind, integer

_MAX_TOKENS = 1 << 17
"""The most tokens of a pass."""


def _read_tokens(value: object) -> int:
    if (tokens := TOKENS.read(value)) > _MAX_TOKENS:
        raise LlamathError(f"at most {_MAX_TOKENS:,} tokens are traced, found {tokens:,}")
    return tokens


class TraceQuestion(Question):
    """Follow a forward pass through a model step by step."""

    report: ClassVar[str] = "Trace"

    context: int = ask(
        Kind(
            _read_tokens,
            expected=TOKENS.expected,
            annotation=TOKENS.annotation,
            metavar="TOKENS",
            schema=TOKENS.schema,
        ),
        default=7,
        help="Number of tokens without PROMPT: 512, 4k.",
    )
    layer: int | None = ask(integer(least=0), default=None, help="Show this layer only.")
    images: str = IMAGES
    decode: bool = ask(
        YES_OR_NO,
        default=False,
        option="--next",
        help="Show the decoding of the next token with the KV cache.",
    )
