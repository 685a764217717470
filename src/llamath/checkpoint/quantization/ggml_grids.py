"""The codebooks of ggml's IQ types, whose codes stand for four or eight levels at once
(ggml-common.h).
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

from ..formats.number_arrays import require_numpy

_LEVELS = {
    "IQ2_XXS": (8, (8, 25, 43)),
    "IQ2_XS": (8, (8, 25, 43)),
    "IQ2_S": (8, (8, 25, 43)),
    "IQ3_XXS": (4, (4, 12, 20, 28, 36, 44, 52, 62)),
    "IQ3_S": (4, (1, 3, 5, 7, 9, 11, 13, 15)),
    "IQ1": (8, (-1, 0, 1)),
}
"""Type → the levels that a code stands for, and the values of a level."""
IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The levels of IQ4_NL and IQ4_XS."""


@cache
def grid(kind: str) -> Any:
    """Return the levels of each code, `[codes, levels]`, int8; ggml_grids.json has two indices
    of levels in a byte, low half first.
    """
    np = require_numpy()
    size, levels = _LEVELS[kind]
    packed = np.frombuffer(base64.b64decode(_tables()[kind]), "u1")
    indices = np.stack((packed & 15, packed >> 4), -1).reshape(-1, size)
    return np.array(levels, "i1")[indices]


@cache
def sign_bits() -> Any:
    """Return the eight signs of each code of seven bits; the eighth makes the number of negative
    ones even.
    """
    np = require_numpy()
    bits = (np.arange(128)[:, None] >> np.arange(7)) & 1
    return np.concatenate((bits, bits.sum(1, keepdims=True) & 1), 1).astype("u1")


@cache
def _tables() -> dict[str, str]:
    tables: dict[str, str] = json.loads(Path(__file__).with_name("ggml_grids.json").read_text())
    return tables
