"""The request of a design: the target, fixed dimensions, constraints, and the ranking."""

from __future__ import annotations

from fractions import Fraction

from ...utils.record_type import Record

IntRange = tuple[int, int]
FloatRange = tuple[float, float]
TOLERANCE = Fraction(1, 200)
_ROUND = 10**5
"""Targets that this divides, like 8B and 1.24B, are sizes; others, like 8,030,261,248, are exact
counts."""


class FixedDims(Record):
    """Dimensions fixed by the user, each as (min, max); None leaves a dimension to the search."""

    layers: IntRange | None = None
    width: IntRange | None = None
    heads: IntRange | None = None
    kv_heads: IntRange | None = None
    head_dim: IntRange | None = None
    vocab: int | None = None
    tied: bool | None = None
    experts: int | None = None
    top_k: int | None = None


class DesignBounds(Record):
    """Constraints that every candidate must meet."""

    aspect: FloatRange | None = None  # width / layers
    ffn_ratio: FloatRange | None = None  # FFN width / width
    multiple_of: int | None = None  # divides the FFN width
    tensor_parallel: int = 1  # divides width, heads, KV heads, FFN width and vocabulary
    active: int | None = None  # active parameters, within the tolerance
    max_kv_per_token: int | None = None  # bytes
    max_memory: int | None = None  # bytes of the weights


class DesignRequest(Record):
    """The request of one design."""

    target: int
    like: str = "llama-3"
    fixed: FixedDims = FixedDims()
    bounds: DesignBounds = DesignBounds()
    tolerance: Fraction = TOLERANCE
    by_error: bool = False
    limit: int = 10
    exclude: frozenset[str] = frozenset()  # presets that are not used to learn the habits

    @property
    def is_exact(self) -> bool:
        """Return whether the target is an exact count, so that designs that meet it exactly come
        first.
        """
        return self.target % _ROUND != 0
