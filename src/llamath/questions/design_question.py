"""The question of a design: dimensions for a number of parameters."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from .settings import Question, Settings, Spec, ask
from .value_kinds import (
    COUNT,
    RATIO,
    SERIES_NAME,
    SHARE,
    SIZE,
    TARGET,
    Target,
    choice,
    integer,
    text,
)

FloatRange = tuple[float, float]


class DesignBounds(Settings):
    """Constraints that every candidate must meet."""

    ffn_ratio: FloatRange | None = ask(
        RATIO, default=None, help="FFN width over width.", example="3.5"
    )
    aspect: FloatRange | None = ask(
        RATIO, default=None, help="Width over layers.", example="100:140"
    )
    tp: int = ask(
        integer(),
        default=1,
        help="It divides width, heads, key/value heads, FFN width and vocabulary.",
        example="8",
    )
    max_kv_per_token: int | None = ask(
        SIZE, default=None, help="Limit of the KV cache of a token in bytes.", example="320KiB"
    )


_GONE = {
    "active": "give it with the target: 47B-A13B",
    "max_memory": "the target decides the bytes of the weights: give a smaller one",
}
"""Bounds that went -> what to give instead."""


class Budget(Settings):
    """What a training may cost, for a scaling law."""

    tokens: int | None = ask(COUNT, default=None, help="Training tokens.", example="15T")
    flops: int | None = ask(COUNT, default=None, help="Training compute.", example="3.8e25")
    law: str | None = ask(
        text("besiroglu"),
        default=None,
        help="hoffmann-1, hoffmann-2, hoffmann-3, besiroglu or kaplan.",
        example="besiroglu",
    )


class DesignQuestion(Question):
    """Find the dimensions of a model with `target` parameters, ranked by the habits of a series of
    published models; `47B-A13B` has 13 billion active ones.

    Without `target`, the `tokens` or `flops` of a `budget` and its scaling `law` give the size.
    `changes` fixes config keys of the designs, dimensions as a number or a range:
    `{"num_hidden_layers": (60, 100), "vocab_size": 32000}`. The report has no candidates if nothing
    meets the demands; then `misses` says what comes nearest.
    """

    function: ClassVar[str] = "design"
    report: ClassVar[str] = "DesignReport"
    models: ClassVar[tuple[str, ...]] = ()
    more: ClassVar[tuple[str, ...]] = ("changes",)

    target: Target | None = ask(
        TARGET,
        default=None,
        positional=True,
        help="Number of parameters: 405B, 1.5e9, 8030261248, or with the active ones 47B-A13B; may "
        "be left out with a scaling law.",
    )
    like: tuple[str, ...] = ask(
        SERIES_NAME.several(),
        default=("llama-3",),
        default_text="llama-3",
        help="A series (llama-3), family or model to follow; a second one is compared with it.",
    )
    bounds: DesignBounds = ask(
        Spec(DesignBounds, gone=_GONE), default=DesignBounds(), help="Constraints to meet."
    )
    tolerance: Fraction = ask(
        SHARE,
        default=Fraction(1, 200),
        default_text="0.5%",
        help="Allowed difference from the target.",
    )
    sort: Literal["habits", "error"] | None = ask(
        choice("habits", "error"),
        default=None,
        default_text="habits; error for an exact target",
        help="Order of designs.",
    )
    top: int = ask(integer(1, 200), default=10, help="Number of designs to show.")
    budget: Budget = ask(
        Spec(Budget), default=Budget(), help="Tokens or compute of the training, for a scaling law."
    )
