"""`UniformNumbers`: the random numbers of one sequence, the same on every engine."""

from __future__ import annotations

from random import Random

MAX_UNIFORM = 1 - 2**-50
"""The largest random number."""


class UniformNumbers:
    """Numbers from 0 to 1 that depend on the seed and on the sequence's row; rows of different
    seeds have nothing in common.
    """

    def __init__(self, seed: int, row: int = 0) -> None:
        self._generator = Random(f"{seed}/{row}" if row else seed)

    def __call__(self) -> float:
        return min(self._generator.random(), MAX_UNIFORM)
