"""`ForwardContext`: what all layers share in one forward pass: positions, rotary embeddings and
attention masks, computed once.

A `Mask` over many queries is produced in blocks, so that no tensor of all queries times all keys is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import isqrt
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.attention_facts import AttentionWindow
from ..core.positions import (
    Alibi,
    AxialRope,
    LogNScaling,
    LogTuning,
    Rope,
    SplitAxialRope,
    TemperatureTuning,
)
from .kv_cache import Cache, key_positions
from .rope import RopeCosSin, axial_cos_sin, cos_sin


class AttentionPattern(NamedTuple):
    """The keys that a query attends to, and the ALiBi bias by distance."""

    window: AttentionWindow
    alibi: Alibi | None = None
    num_heads: int = 0  # heads that ALiBi defines slopes for
    first_head: int = 0  # the range of these heads on this rank
    last_head: int | None = None

    @property
    def span(self) -> int | None:
        """Number of positions that a query sees backwards at most; None: all."""
        return self.window.size or self.window.chunk


_PATTERNS: dict[AttentionPattern, AttentionPattern] = {}


def shared_pattern(pattern: AttentionPattern) -> AttentionPattern:
    """Return one object for equal patterns, so that the layers of a model share their masks."""
    return _PATTERNS.setdefault(pattern, pattern)


class MaskBlock(NamedTuple):
    """A range of queries, the keys that any of them sees, and the mask between them.

    `mask` is boolean, or a bias that is added to the scores; with `causal` it is the lower triangle
    and no tensor is needed.
    """

    queries: slice = slice(None)
    keys: slice = slice(None)
    mask: Tensor | None = None
    causal: bool = False


class BlockLimits(NamedTuple):
    """The number of queries in a block of the mask: at least `min_queries`, otherwise limited by
    the scores and keys of the block.
    """

    max_scores: int = 1 << 25  # attention scores computed at once
    min_queries: int = 16
    # at most 1 / key_fraction of the keys that a query sees: in larger blocks most keys are masked
    # out
    key_fraction: int = 4


_DEFAULT_BLOCK_LIMITS = BlockLimits()


class ForwardContext:
    """One pass over T tokens of each row of a batch, which follow the `past_length` tokens in
    the cache.
    """

    def __init__(
        self, tokens: Tensor, cache: Cache, block_limits: BlockLimits = _DEFAULT_BLOCK_LIMITS
    ) -> None:
        self.cache, self.past_length, self.new_length = cache, cache.length, tokens.shape[-1]
        self.padding, self.device = cache.padding, tokens.device
        self.token_index = torch.arange(
            self.past_length, self.past_length + self.new_length, device=tokens.device
        )
        self.positions = self.to_positions(self.token_index)  # (T,), or (B, T) if rows are padded
        self.block_limits = block_limits
        self.per_layer_inputs: Tensor | None = None  # (B, T, L, p), the per-layer embeddings
        # rows and columns of the patches of an image; None: a square
        self.patch_grid: tuple[int, int] | None = None
        self._rope_cos_sin: dict[int, RopeCosSin] = {}
        self._rope_complex: dict[int, Tensor] = {}
        # by identity: `shared_pattern` makes equal patterns the same object
        self._masks: dict[tuple[int, int], Mask] = {}

    def to_positions(self, index: Tensor) -> Tensor:
        """Convert token indices to positions, which start at the first token of a row that is
        not padding.
        """
        return index if self.padding is None else (index - self.padding[:, None]).clamp(min=0)

    @property
    def max_length(self) -> int:
        """Length of the longest row without padding."""
        return (
            self.past_length
            + self.new_length
            - (0 if self.padding is None else int(self.padding.min()))
        )

    @property
    def token_mask(self) -> Tensor | None:
        """Mask of the tokens of this pass that are not padding, `(B, T, 1)`; None if none is
        padding.
        """
        return (
            None if self.padding is None else (self.token_index >= self.padding[:, None])[..., None]
        )

    def rope_cos_sin(self, rope: Rope | None) -> RopeCosSin | None:
        """Cosines and sines of the rotation of this pass's tokens."""
        if rope is None:
            return None
        if id(rope) not in self._rope_cos_sin:
            self._rope_cos_sin[id(rope)] = self._compute_rope(rope)
        return self._rope_cos_sin[id(rope)]

    def rope_complex(self, rope: Rope) -> Tensor:
        """The rotation of this pass's tokens as one complex number per pair."""
        if id(rope) not in self._rope_complex:
            rotation = self._compute_rope(rope)
            self._rope_complex[id(rope)] = torch.complex(rotation.cos, rotation.sin)
        return self._rope_complex[id(rope)]

    def split_rope(self, rope: SplitAxialRope) -> tuple[RopeCosSin, RopeCosSin]:
        """Cosines and sines of the rotation of each half of a head, by the column and by the row
        of each patch.
        """
        rows, columns = self.patch_grid or (isqrt(self.new_length),) * 2
        plain = Rope(theta=rope.theta, dim=rope.dim // 2)
        row, column = (
            torch.arange(rows).repeat_interleave(columns),
            torch.arange(columns).repeat(rows),
        )
        halves = (cos_sin(plain, x.to(self.positions.device), 0) for x in (column, row))
        across, down = (
            RopeCosSin(cos.unsqueeze(-2), sin.unsqueeze(-2), False) for cos, sin in halves
        )
        return across, down

    def _compute_rope(self, rope: Rope) -> RopeCosSin:
        if isinstance(rope, AxialRope):
            grid = self.patch_grid or (isqrt(self.new_length),) * 2
            cos, sin = axial_cos_sin(rope, *grid, self.positions.device)
            return RopeCosSin(cos.unsqueeze(-2), sin.unsqueeze(-2), rope.interleaved)
        end, prompt = self.past_length + self.new_length, self.cache.prefill_length
        if self.padding is None or not rope.depends_on_length:
            cos, sin = cos_sin(rope, self.positions, rope.angle_length(end, prompt))
        else:
            rows = [
                cos_sin(rope, row, rope.angle_length(end - padding, prompt - padding))
                for row, padding in zip(self.positions, self.padding.tolist(), strict=True)
            ]
            cos, sin = (torch.stack(x) for x in zip(*rows, strict=True))
        return RopeCosSin(cos.unsqueeze(-2), sin.unsqueeze(-2), rope.interleaved)

    def temperature_scale(self, temperature: TemperatureTuning | LogNScaling) -> Tensor:
        """Position-dependent factor on the queries, `(T, 1, 1)` or `(B, T, 1, 1)`."""
        t = self.positions.float()
        if isinstance(temperature, LogTuning):
            scale = 1 + temperature.scale * torch.log(((t + 1) / temperature.floor).clamp(min=1))
        elif isinstance(temperature, TemperatureTuning):
            scale = 1 + temperature.scale * torch.log(
                1 + torch.floor((t + temperature.offset) / temperature.floor)
            )
        else:
            scale = (
                torch.log(t + 1) / torch.log(torch.tensor(float(temperature.original_context)))
            ).clamp(min=1)
        return scale[..., None, None]

    def cached_positions(self, capacity: int) -> Tensor:
        """Token indices of the keys that a KV cache of this capacity returns in this pass,
        `(S,)`.
        """
        return key_positions(self.new_length, self.past_length, capacity).to(self.device)

    def mask(self, pattern: AttentionPattern, capacity: int) -> Mask:
        """The mask between this pass's queries and the keys from a KV cache of this capacity."""
        key = id(pattern), capacity
        if key not in self._masks:
            self._masks[key] = Mask(self, pattern, capacity)
        return self._masks[key]


class Mask:
    """The attention mask of a pass: which cached keys each query attends to."""

    def __init__(self, ctx: ForwardContext, pattern: AttentionPattern, capacity: int) -> None:
        self._ctx, self._pattern, self._capacity = ctx, pattern, capacity
        all_in_span = pattern.span is None or ctx.past_length + ctx.new_length <= pattern.span
        # the ring buffer is exactly the window
        window_ring = ctx.new_length == 1 and capacity == pattern.window.size
        reach = pattern.window.after_prompt
        all_in_span = all_in_span and (
            not reach
            or not ctx.past_length
            or ctx.past_length + ctx.new_length <= ctx.cache.prefill_length + reach
        )
        unmasked = (
            ctx.padding is None
            and pattern.alibi is None
            and pattern.window.causal
            and (all_in_span or window_ring)
        )
        self._is_causal_triangle = unmasked and (ctx.new_length == 1 or not ctx.past_length)

    def fits_one_block(self, heads: int, fused: bool) -> bool:
        """Whether all queries are processed at once; a fused kernel that stores no scores may
        always do so for a causal triangle.
        """
        return (
            self._ctx.new_length == 1
            or (self._is_causal_triangle and fused)
            or self._ctx.new_length <= self._block_size(heads)
        )

    def visible(self, queries: slice) -> Tensor:
        """Which keys these queries see, `(T, S)` or `(B, T, S)`."""
        return (
            self._visible(queries, slice(None)).squeeze(-3)
            if self._ctx.padding is not None
            else self._visible(queries, slice(None))
        )

    def distances(self, queries: slice) -> Tensor:
        """How many tokens each key is before each of these queries, `(T, S)`."""
        return self._ctx.token_index[queries, None] - self._key_positions

    @cached_property
    def full_block(self) -> MaskBlock:
        """All queries and all keys as one block."""
        return (
            MaskBlock(causal=self._ctx.new_length > 1)
            if self._is_causal_triangle
            else self._block(slice(None), slice(None))
        )

    def blocks(self, heads: int) -> Iterator[MaskBlock]:
        """Consecutive ranges of queries, each with only the keys that they need."""
        size = self._block_size(heads)
        for first in range(0, self._ctx.new_length, size):
            queries = slice(first, min(first + size, self._ctx.new_length))
            yield self._block(queries, self._keys_in_window(queries))

    @cached_property
    def _key_positions(self) -> Tensor:
        return self._ctx.cached_positions(self._capacity)

    def _block_size(self, heads: int) -> int:
        """Number of queries in a block."""
        limits = self._ctx.block_limits
        num_keys = min(self._pattern.span or len(self._key_positions), len(self._key_positions))
        return max(
            limits.min_queries,
            min(limits.max_scores // (heads * num_keys), max(num_keys, 512) // limits.key_fraction),
        )

    def _keys_in_window(self, queries: slice) -> slice:
        """The range of keys that any of these queries sees; keys are in the order of their
        tokens.
        """
        window, span = self._pattern.window, self._pattern.span
        num_past = len(self._key_positions) - self._ctx.new_length
        first = 0 if span is None else max(0, num_past + queries.start - span + 1)
        if window.causal:
            return slice(first, num_past + queries.stop)
        return slice(first, None if span is None else num_past + queries.stop + span - 1)

    def _block(self, queries: slice, keys: slice) -> MaskBlock:
        visible = self._visible(queries, keys)
        alibi = self._pattern.alibi
        if alibi is None:
            return MaskBlock(queries, keys, visible)
        slopes = _alibi_slopes(alibi, self._pattern.num_heads)[
            self._pattern.first_head : self._pattern.last_head
        ].to(self._ctx.device)
        bias = (
            slopes[:, None, None]
            * self._ctx.to_positions(self._key_positions[keys]).float()[..., None, None, :]
        )
        bias = (bias.bfloat16().float() if alibi.bf16_rounded else bias) * alibi.scale
        return MaskBlock(queries, keys, bias.masked_fill(~visible, -torch.inf))

    def _visible(self, queries: slice, keys: slice) -> Tensor:
        """Return the mask of queries over keys, `(T, S)` or `(B, 1, T, S)`; padding attends to
        itself so that no softmax row is empty.
        """
        ctx, window, key_index = self._ctx, self._pattern.window, self._key_positions[keys]
        distance = ctx.token_index[queries, None] - key_index
        visible = distance >= 0 if window.causal else torch.ones_like(distance, dtype=torch.bool)
        if window.size is not None:
            visible = visible & (distance.abs() < window.size)
        if window.after_prompt is not None and ctx.past_length:
            visible = visible & (
                (key_index < ctx.cache.prefill_length) | (distance < window.after_prompt)
            )
        if window.chunk is not None:
            query_chunk = ctx.positions[..., queries, None] // window.chunk
            visible = visible & (
                query_chunk == ctx.to_positions(key_index)[..., None, :] // window.chunk
            )
        if ctx.padding is None:
            return visible
        not_padding = key_index >= ctx.padding[:, None, None]
        return ((visible & not_padding) | (distance == 0))[:, None]


class DistanceBias:
    """A mask that adds a bias `(B, H, T, D)` to the score of the key at each distance; none to
    those farther away.
    """

    def __init__(self, mask: Mask, bias: Tensor) -> None:
        self._mask, self._bias = mask, bias

    def fits_one_block(self, heads: int, fused: bool) -> bool:  # noqa: ARG002
        """Whether all queries are processed at once."""
        return self._mask.fits_one_block(heads, fused=False)

    @property
    def full_block(self) -> MaskBlock:
        """All queries and all keys as one block."""
        return self._biased(slice(None), slice(None))

    def blocks(self, heads: int) -> Iterator[MaskBlock]:
        """Consecutive ranges of queries, each with only the keys that they need."""
        return (self._biased(x.queries, x.keys) for x in self._mask.blocks(heads))

    def _biased(self, queries: slice, keys: slice) -> MaskBlock:
        visible, distance, bias = (
            self._mask.visible(queries),
            self._mask.distances(queries)[:, keys],
            self._bias[:, :, queries],
        )
        visible = visible.reshape(-1, 1, *visible.shape[-2:])[..., keys]
        near = (distance >= 0) & (distance < bias.shape[-1])
        index = distance.clamp(0, bias.shape[-1] - 1).expand(*bias.shape[:2], -1, -1)
        return MaskBlock(
            queries,
            keys,
            bias.gather(-1, index).masked_fill(~near, 0.0).masked_fill(~visible, -torch.inf),
        )


def _alibi_slopes(alibi: Alibi, heads: int) -> Tensor:
    """One slope per head; heads beyond a power of two take the slopes between those of the first
    ones.
    """
    power = 1 << (heads.bit_length() - 1)
    regular = [2 ** (-alibi.max_bias * i / power) for i in range(1, power + 1)]
    between = [
        2 ** (-alibi.max_bias * i / (2 * power)) for i in range(1, 2 * (heads - power) + 1, 2)
    ]
    slopes = torch.tensor(regular + between)
    return slopes.bfloat16().float() if alibi.bf16_rounded else slopes
