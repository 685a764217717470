"""Llama 3.1's scaling of positions as GGUF has it: one divisor for each frequency, in `rope_freqs.weight`; made, and made out again."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import pi
from typing import Any

from ..core.errors import ConvertError
from ..core.positions import Llama3Rope

NAME = "rope_freqs.weight"
ORIGINALS = tuple(1 << i for i in (13, *range(5, 21)))
"""Trained lengths that are tried, that of Llama 3 first."""


def divisors(rope: Llama3Rope) -> list[float]:
    """By how much each frequency is divided, in single precision."""
    found = []
    for i in range(0, rope.dim, 2):
        turns = rope.original_context / (2 * pi * rope.theta ** (i / rope.dim))  # while the trained length goes by
        smooth = min(1.0, max(0.0, (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)))
        found.append(1 / ((1 - smooth) / rope.factor + smooth))
    return list(struct.unpack(f"<{len(found)}f", struct.pack(f"<{len(found)}f", *found)))


def scaling(found: Sequence[float], theta: float, dim: int) -> dict[str, Any]:
    """The `rope_scaling` that has these divisors."""
    factor = max(found)
    for original in ORIGINALS:
        made = divisors(
            Llama3Rope(theta=theta, dim=dim, factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_context=original)
        )
        if len(made) == len(found) and all(abs(a - b) <= 1e-4 * b for a, b in zip(made, found, strict=True)):
            known = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
            return {"rope_type": "llama3", "factor": factor, **known}
    raise ConvertError(f"{NAME} holds divisors that no scaling of Llama's has", hint='say it: --set rope_scaling={"rope_type": …}')
