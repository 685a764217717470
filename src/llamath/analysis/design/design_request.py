"""What is asked of a design: the target, what is fixed, what is bounded, and how candidates are ranked."""

from __future__ import annotations

from fractions import Fraction

from ...core.record_type import Record

IntRange = tuple[int, int]
FloatRange = tuple[float, float]
TOLERANCE = Fraction(1, 200)


class FixedDims(Record):
    """Dimensions that the user gives, each as (least, most); None leaves them to the search."""

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
    """What every candidate must keep to."""

    aspect: FloatRange | None = None  # width over layers
    ffn_ratio: FloatRange | None = None  # feed-forward width over width
    multiple_of: int | None = None  # of the feed-forward width
    tensor_parallel: int = 1  # width, heads, KV heads, feed-forward and vocabulary divide by it
    active: int | None = None  # parameters that a token passes through, within the tolerance
    max_kv_per_token: int | None = None  # bytes
    max_memory: int | None = None  # bytes of the weights


class DesignRequest(Record):
    """One question to `design`."""

    target: int
    like: str = "llama-3"
    fixed: FixedDims = FixedDims()
    bounds: DesignBounds = DesignBounds()
    tolerance: Fraction = TOLERANCE
    by_error: bool = False
    limit: int = 10
    exclude: frozenset[str] = frozenset()  # presets that must not teach the habits
