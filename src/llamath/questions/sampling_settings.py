"""The settings of sampling, as `temperature=0.7,top_p=0.9`."""

from __future__ import annotations

from .settings import Settings, ask
from .value_kinds import integer, number


class SamplingSettings(Settings):
    """All settings. `Sampling` has their defaults."""

    temperature: float = ask(
        number(0, 1e308, "a number of at least 0"),
        help="Sampling temperature; 0 is greedy.",
        example="0.7",
    )
    top_p: float = ask(
        number(0, 1),
        help="Nucleus sampling: keep the smallest set of tokens with cumulative probability ≥ P.",
        example="0.9",
    )
    top_k: int = ask(
        integer(0, 10**9 - 1), help="Tokens that are kept, the most likely.", example="40"
    )
    min_p: float = ask(
        number(0, 1), help="Tokens below this share of the likeliest are left out.", example="0.05"
    )
    repetition_penalty: float = ask(
        number(0, 1e308, "a number above 0", open_below=True),
        help="Penalty of tokens that occurred before.",
        example="1.1",
    )
    seed: int = ask(integer(0, 2**63 - 1), help="Random seed.", example="1")
