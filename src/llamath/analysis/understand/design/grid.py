"""`Grid`: the admissible dimensions of a design: widths, heads, KV heads, depths and FFN widths."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, exp, floor, gcd, lcm, log
from typing import NamedTuple

from ....questions.design_question import DesignBounds, FloatRange
from ....utils.record_type import Record
from .design_request import DesignRequest, FixedDims, IntRange
from .family_shape import FamilyShape
from .habits import Habits

ASPECT_MARGIN, FFN_MARGIN, HEADS_MARGIN = 2.0, 1.5, 1.25
"""The default margins around the published range of a series: half to twice the aspect ratio,
and so on."""

MAX_DIM, MAX_HEAD_DIM = 2**40, 1024
_MAX_FFN_STEP = 64
"""The FFN width is a multiple of this, or of a smaller power of two for small widths."""


class OuterDims(NamedTuple):
    """All dimensions except layers and FFN width."""

    d: int
    h: int
    H: int
    K: int


class Grid(Record):
    """The grid of one request."""

    fixed: FixedDims
    bounds: DesignBounds
    aspect: FloatRange | None
    ratio: FloatRange | None  # FFN width over width
    ffn_widths: IntRange | None  # that the user fixes
    step: int  # of the FFN width
    width_step: int
    head_dims: tuple[int, ...]
    square: bool
    share: FloatRange  # heads × head_dim / width, where that is free
    kv_heads: tuple[int, ...]  # besides as many as heads
    grouped: bool

    @property
    def one_width(self) -> bool:
        """Return whether the width is fixed."""
        return _is_single(self.fixed.width)

    def layers(self, d: int) -> IntRange:
        """Return the range of depths for a width."""
        low, high = self.fixed.layers or (1, MAX_DIM)
        if self.aspect:
            low, high = max(low, ceil(d / self.aspect[1])), min(high, floor(d / self.aspect[0]))
        return low, high

    def ffn(self, d: int) -> IntRange:
        """Return the range of FFN widths for a width; both ends are multiples of the step."""
        (low, high), step = self._ffn_by_ratio(d), self.step
        if self.ffn_widths is not None:
            low = max(low, -(-self.ffn_widths[0] // step) * step)
            high = min(high, self.ffn_widths[1] // step * step)
        return low, high

    def _ffn_by_ratio(self, d: int) -> IntRange:
        if self.ratio is None:
            return self.step, MAX_DIM // self.step * self.step
        low, high = self.ratio
        if low == high and self.ffn_widths is not None:  # a given width is not rounded to
            low, high = low - _MAX_FFN_STEP / d, high + _MAX_FFN_STEP / d
        if low == high:
            width = max(self.step * floor(low * d / self.step + 0.5), self.step)
            return width, width
        return max(self.step * ceil(low * d / self.step), self.step), self.step * floor(
            high * d / self.step
        )

    def outer(self, d: int) -> Iterator[OuterDims]:
        """Yield the combinations of heads, head_dim and KV heads for a width."""
        n = self.bounds.tp
        for h, H in sorted(set(self._heads(d))):
            for K in self._kv_heads(H):
                if H % n == 0 and K % n == 0:
                    yield OuterDims(d, h, H, K)

    def _heads(self, d: int) -> Iterator[tuple[int, int]]:
        low, high = self.fixed.heads or (1, MAX_DIM)
        if self.fixed.heads and self.fixed.width and self.fixed.head_dim and low == high:
            yield from ((h, low) for h in self.head_dims)
        elif not self.square:
            yield from (
                (h, H) for h in self.head_dims for H in self._head_counts(d, h) if low <= H <= high
            )
        elif self.fixed.head_dim or high - low >= d:
            yield from ((h, d // h) for h in self.head_dims if d % h == 0 and low <= d // h <= high)
        else:
            yield from (
                (d // H, H) for H in range(low, min(high, d) + 1) if d % H == 0 and d // H % 8 == 0
            )

    def _head_counts(self, d: int, h: int) -> range:
        """Return the head counts for which heads × head_dim / width is admissible: all, or
        multiples of a power of two.
        """
        low, high = ceil(self.share[0] * d / h), floor(self.share[1] * d / h)
        step = 1 << max(0, (max(high - low, 1) - 1).bit_length() - 4)
        if self.fixed.heads and _is_single(self.fixed.heads):
            return range(self.fixed.heads[0], self.fixed.heads[1] + 1)
        return range(max(step * ceil(low / step), step), high + 1, step)

    def _kv_heads(self, H: int) -> Iterator[int]:
        if not self.grouped:
            yield H
        elif self.fixed.kv_heads:
            low, high = self.fixed.kv_heads
            yield from (K for K in range(low, min(high, H) + 1) if H % K == 0)
        else:
            yield from (K for K in (*(x for x in self.kv_heads if x < H), H) if H % K == 0)


def build_grid(request: DesignRequest, shape: FamilyShape, habits: Habits) -> Grid:
    """Build the grid of a request, with defaults from the habits."""
    fixed, bounds = request.fixed, request.bounds
    n = bounds.tp
    dims = _head_dims(fixed.head_dim) if fixed.head_dim else habits.head_dims.known
    aspect = (
        exp(habits.aspect.span[0]) / ASPECT_MARGIN,
        exp(habits.aspect.span[1]) * ASPECT_MARGIN,
    )
    free = not (_is_single(fixed.layers) or _is_single(fixed.width))
    ratio = (exp(habits.ffn.span[0]) / FFN_MARGIN, exp(habits.ffn.span[1]) * FFN_MARGIN)
    ffn = fixed.expert_ffn if shape.has_expert_key else fixed.ffn
    own_step = ffn[0] if ffn and _is_single(ffn) else _ffn_step(request.target, habits)
    return Grid(
        fixed=fixed,
        bounds=bounds,
        aspect=bounds.aspect or (aspect if free else None),
        ratio=bounds.ffn_ratio or (None if ffn else ratio),
        ffn_widths=ffn,
        step=lcm(fixed.multiple_of or own_step, n),
        width_step=lcm(n, _width_step(fixed, dims, habits, request.target)),
        head_dims=dims,
        square=habits.square,
        share=(exp(habits.heads.value) / HEADS_MARGIN, exp(habits.heads.value) * HEADS_MARGIN),
        kv_heads=_kv_choices(habits, n),
        grouped=shape.grouped,
    )


def _kv_choices(habits: Habits, n: int) -> tuple[int, ...]:
    """The series' own numbers of KV heads and powers of two, and with tensor parallelism n times
    those.
    """
    twos = (1, 2, 4, 8, 16, 32)
    return tuple(sorted({*habits.kv_heads.known, *twos, *(n * x for x in twos)}))


def _is_single(span: IntRange | None) -> bool:
    return span is not None and span[0] == span[1]


def _head_dims(span: IntRange) -> tuple[int, ...]:
    """The head sizes in a range: a single one, or the multiples of 8."""
    return (
        span[:1]
        if _is_single(span)
        else tuple(range(8 * -(-span[0] // 8), min(span[1], MAX_HEAD_DIM) + 1, 8))
    )


def _typical_width(target: int, habits: Habits) -> float:
    """The approximate width of a model of this size, with 12·d² parameters per layer."""
    return max(exp((log(target / 12) + habits.aspect.value) / 3), 2.0)


def _ffn_step(target: int, habits: Habits) -> int:
    """A power of two of at most an eighth of the width."""
    return min(_MAX_FFN_STEP, 1 << max(floor(log(_typical_width(target, habits)) / log(2)) - 3, 0))


def _width_step(fixed: FixedDims, dims: tuple[int, ...], habits: Habits, target: int) -> int:
    """The step of the widths: a common multiple of the head sizes and of a power of two below a
    hundredth of the width.
    """
    if _is_single(fixed.width):
        return 1
    coarse = 1 << max(floor(log(_typical_width(target, habits)) / log(2)) - 7, 0)
    if not habits.square:
        return max(64, 2 * coarse)
    if _is_single(fixed.heads) and fixed.heads and not fixed.head_dim:
        return 8 * fixed.heads[0]
    return lcm(gcd(*dims), coarse) if dims else 1
