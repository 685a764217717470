"""`Sampling`: how the next token is chosen."""

from __future__ import annotations

import math

from ..utils.errors import LlamathError
from ..utils.record_type import Record

MIN_TEMPERATURE = 1e-6
"""The temperature below which sampling is greedy."""
DEFAULT_MAX_TOKENS = 256
"""New tokens of a prompt."""


class Sampling(Record):
    """Sampling parameters, greedy by default. Filters are applied in the order of transformers."""

    temperature: float = 0.0  # logits are divided by it; 0 is greedy
    top_k: int = 0  # keep the k most likely tokens; 0: all
    top_p: float = 1.0  # keep the smallest set of tokens with this cumulative probability
    min_p: float = 0.0  # keep tokens with at least this fraction of the highest probability
    # divides positive logits of tokens already present, and multiplies negative ones
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __init__(self, **values: float | None) -> None:
        super().__init__(**values)
        for name, (low, high, expected) in _RANGES.items():
            x = getattr(self, name)
            if x is not None and not (math.isfinite(x) and low <= x <= high):
                raise LlamathError(
                    f"{name} must be {expected}, found {x}", hint=_HINTS.get(name, "")
                )
        if self.repetition_penalty == 0:
            raise LlamathError(
                "repetition_penalty must be above 0, found 0", hint=_HINTS["repetition_penalty"]
            )

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < MIN_TEMPERATURE or self.top_k == 1


_RANGES: dict[str, tuple[float, float, str]] = {
    "temperature": (0, math.inf, "0 or more"),
    "top_k": (0, math.inf, "0 or more"),
    "top_p": (0, 1, "from 0 to 1"),
    "min_p": (0, 1, "from 0 to 1"),
    "repetition_penalty": (0, math.inf, "above 0"),
    "seed": (0, 2**63 - 1, "from 0 to 2⁶³ − 1"),
}
"""The range of each parameter, and its description."""
_HINTS = {
    "temperature": "0 is greedy, 1 samples from the model's own distribution",
    "repetition_penalty": "1 applies no penalty, 1.1 is a usual value",
}
