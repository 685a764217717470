"""The request of a design: the target, fixed dimensions, constraints, and the ranking."""

from __future__ import annotations

from fractions import Fraction

from ....questions.design_question import DesignBounds, DesignQuestion, FixedDims
from ....utils.record_type import Record

_ROUND = 10**5
"""Targets that this divides, like 8B and 1.24B, are sizes; others, like 8,030,261,248, are exact
counts."""


class DesignRequest(Record):
    """The request of one design."""

    target: int
    like: str = DesignQuestion.like
    fixed: FixedDims = FixedDims()
    bounds: DesignBounds = DesignBounds()
    tolerance: Fraction = DesignQuestion.tolerance
    by_error: bool = False
    limit: int = DesignQuestion.top
    exclude: frozenset[str] = frozenset()  # presets that are not used to learn the habits

    @property
    def is_exact(self) -> bool:
        """Return whether the target is an exact count, so that designs that meet it exactly come
        first.
        """
        return self.target % _ROUND != 0
