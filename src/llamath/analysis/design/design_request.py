"""What is asked of a design: the target, what is fixed, what is bounded, and how candidates are ranked."""

from __future__ import annotations

from fractions import Fraction

from ...core.record_type import Record

Span = tuple[int, int]
Reals = tuple[float, float]
TOLERANCE = Fraction(1, 200)


class Fixed(Record):
    """Dimensions that the user gives, each as (least, most); None leaves them to the search."""

    layers: Span | None = None
    width: Span | None = None
    heads: Span | None = None
    kv_heads: Span | None = None
    head_dim: Span | None = None
    vocab: int | None = None
    tied: bool | None = None
    experts: int | None = None
    top_k: int | None = None


class Bounds(Record):
    """What every candidate must keep to."""

    aspect: Reals | None = None  # width over layers
    ffn_ratio: Reals | None = None  # feed-forward width over width
    multiple_of: int | None = None  # of the feed-forward width
    tensor_parallel: int = 1  # width, heads, KV heads, feed-forward and vocabulary divide by it
    active: int | None = None  # parameters that a token passes through, within the tolerance
    max_kv_per_token: int | None = None  # bytes
    max_memory: int | None = None  # bytes of the weights


class Request(Record):
    """One question to `design`."""

    target: int
    like: str = "llama-3"
    fixed: Fixed = Fixed()
    bounds: Bounds = Bounds()
    tolerance: Fraction = TOLERANCE
    by_error: bool = False
    limit: int = 10
    without: frozenset[str] = frozenset()  # presets that must not teach the habits
