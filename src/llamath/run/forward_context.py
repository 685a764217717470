"""`Step`: one pass over some tokens; what its layers share, positions, rotations and masks, is worked out once.

A `Mask` of many queries is told in parts, none of which is as large as all queries times all keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.forward_pass import AttentionWindow
from ..core.positions import Alibi, LogNScaling, QwenDynamicRope, Rope, TemperatureTuning
from .kv_cache import Cache, key_positions
from .rope import LENGTH_DEPENDENT, RopeCosSin, cos_sin


class AttentionPattern(NamedTuple):
    """What a query may look at, and what Alibi adds for how far away it is."""

    window: AttentionWindow
    alibi: Alibi | None = None
    num_heads: int = 0  # that Alibi gives slopes to
    first_head: int = 0  # of them, of those that are here
    last_head: int | None = None

    @property
    def span(self) -> int | None:
        """How many tokens back it reaches; None: all of them."""
        return self.window.size or self.window.chunk


class MaskBlock(NamedTuple):
    """Some queries and the keys that any of them sees; what is added to their scores, or which of these count.

    `causal` stands for the triangle, which needs no numbers.
    """

    queries: slice = slice(None)
    keys: slice = slice(None)
    mask: Tensor | None = None
    causal: bool = False


class ForwardContext:
    """T tokens for each row of a batch, after the `past` others that a cache knows of."""

    def __init__(self, tokens: Tensor, cache: Cache) -> None:
        self.cache, self.past_length, self.new_length = cache, cache.length, tokens.shape[-1]
        self.padding, self.device = cache.padding, tokens.device
        self.token_index = torch.arange(self.past_length, self.past_length + self.new_length, device=tokens.device)
        self.positions = self.to_positions(self.token_index)  # (T,), or (B, T) if rows are padded
        self.per_layer_inputs: Tensor | None = None  # (B, T, L, p), what each layer is told of each token besides
        self._rope_cos_sin: dict[int, RopeCosSin] = {}
        self._rope_complex: dict[int, Tensor] = {}
        self._masks: dict[tuple[AttentionPattern, int], Mask] = {}

    def to_positions(self, index: Tensor) -> Tensor:
        """Positions of tokens, counted in each row from the first that is no padding."""
        return index if self.padding is None else (index - self.padding[:, None]).clamp(min=0)

    @property
    def max_length(self) -> int:
        """How many tokens the longest row has, without padding."""
        return self.past_length + self.new_length - (0 if self.padding is None else int(self.padding.min()))

    @property
    def token_mask(self) -> Tensor | None:
        """Which tokens of this pass are no padding, `(B, T, 1)`; None: all."""
        return None if self.padding is None else (self.token_index >= self.padding[:, None])[..., None]

    def rope_cos_sin(self, rope: Rope | None) -> RopeCosSin | None:
        """The rotation of this pass's tokens."""
        if rope is None:
            return None
        if id(rope) not in self._rope_cos_sin:
            self._rope_cos_sin[id(rope)] = self._compute_rope(rope)
        return self._rope_cos_sin[id(rope)]

    def rope_complex(self, rope: Rope) -> Tensor:
        """The same as one complex number for each pair."""
        if id(rope) not in self._rope_complex:
            turn = self._compute_rope(rope)
            self._rope_complex[id(rope)] = torch.complex(turn.cos, turn.sin)
        return self._rope_complex[id(rope)]

    def _compute_rope(self, rope: Rope) -> RopeCosSin:
        end = self.cache.prefill_length if isinstance(rope, QwenDynamicRope) else self.past_length + self.new_length
        if self.padding is None or not isinstance(rope, LENGTH_DEPENDENT):
            cos, sin = cos_sin(rope, self.positions, end)
        else:
            rows = [cos_sin(rope, row, end - int(pad)) for row, pad in zip(self.positions, self.padding, strict=True)]
            cos, sin = (torch.stack(part) for part in zip(*rows, strict=True))
        return RopeCosSin(cos.unsqueeze(-2), sin.unsqueeze(-2), rope.interleaved)

    def temperature_scale(self, temperature: TemperatureTuning | LogNScaling) -> Tensor:
        """What queries are multiplied by, `(T, 1, 1)` or `(B, T, 1, 1)`."""
        t = self.positions.float()
        if isinstance(temperature, TemperatureTuning):
            grown = 1 + temperature.scale * torch.log(1 + torch.floor((t + temperature.offset) / temperature.floor))
        else:
            grown = (torch.log(t + 1) / torch.log(torch.tensor(float(temperature.original_context)))).clamp(min=1)
        return grown[..., None, None]

    def cached_positions(self, room: int) -> Tensor:
        """For which tokens the keys stand that a memory of this room gives, `(S,)`."""
        return key_positions(self.new_length, self.past_length, room).to(self.device)

    def mask(self, sight: AttentionPattern, room: int) -> Mask:
        """What the queries of this pass see of those keys."""
        if (sight, room) not in self._masks:
            self._masks[sight, room] = Mask(self, sight, room)
        return self._masks[sight, room]


MAX_SCORES = 1 << 25
"""No more scores than this at once, unless few queries have as many."""
MIN_QUERIES, KEY_FRACTION = 16, 4
"""At least so many queries at once; and at most this part of what each of them sees, beyond which most keys are seen by few."""


class Mask:
    """What the queries of a pass see of the keys that a memory of some room gives."""

    def __init__(self, step: ForwardContext, sight: AttentionPattern, room: int) -> None:
        self._ctx, self._pattern, self._capacity = step, sight, room
        near = sight.span is None or step.past_length + step.new_length <= sight.span
        ring = step.new_length == 1 and room == sight.window.size  # it holds what is in the window, and nothing else
        easy = step.padding is None and sight.alibi is None and sight.window.causal and (near or ring)
        self._is_causal_triangle = easy and (step.new_length == 1 or not step.past_length)

    def fits_one_block(self, heads: int, fused: bool) -> bool:
        """Whether all queries may be taken at once; so may a triangle where a kernel that keeps no scores is to work it out."""
        return self._ctx.new_length == 1 or (self._is_causal_triangle and fused) or self._ctx.new_length <= self._block_size(heads)

    @cached_property
    def full_block(self) -> MaskBlock:
        """All queries and all keys."""
        return MaskBlock(causal=self._ctx.new_length > 1) if self._is_causal_triangle else self._block(slice(None), slice(None))

    def blocks(self, heads: int) -> Iterator[MaskBlock]:
        """Some queries after the others, each with no more keys than they need."""
        size = self._block_size(heads)
        for first in range(0, self._ctx.new_length, size):
            queries = slice(first, min(first + size, self._ctx.new_length))
            yield self._block(queries, self._keys_in_window(queries))

    @cached_property
    def _key_positions(self) -> Tensor:
        return self._ctx.cached_positions(self._capacity)

    def _block_size(self, heads: int) -> int:
        """How many queries to take at once."""
        seen = min(self._pattern.span or len(self._key_positions), len(self._key_positions))
        return max(MIN_QUERIES, min(MAX_SCORES // (heads * seen), max(seen, 512) // KEY_FRACTION))

    def _keys_in_window(self, queries: slice) -> slice:
        """The keys that any of these queries sees, where they stand in the order of their tokens."""
        reach, back = self._pattern.window, self._pattern.span
        before = len(self._key_positions) - self._ctx.new_length  # keys of the tokens before this pass
        first = 0 if back is None else max(0, before + queries.start - back + 1)
        if reach.causal:
            return slice(first, before + queries.stop)
        return slice(first, None if back is None else before + queries.stop + back - 1)

    def _block(self, queries: slice, near: slice) -> MaskBlock:
        visible = self._visible(queries, near)
        alibi = self._pattern.alibi
        if alibi is None:
            return MaskBlock(queries, near, visible)
        slopes = _alibi_slopes(alibi, self._pattern.num_heads)[self._pattern.first_head : self._pattern.last_head].to(self._ctx.device)
        bias = slopes[:, None, None] * self._ctx.to_positions(self._key_positions[near]).float()[..., None, None, :]
        bias = (bias.bfloat16().float() if alibi.bf16_rounded else bias) * alibi.scale
        return MaskBlock(queries, near, bias.masked_fill(~visible, -torch.inf))

    def _visible(self, queries: slice, near: slice) -> Tensor:
        """Which query sees which key, `(T, S)` or `(B, 1, T, S)`; padding sees itself, so that no row is empty."""
        step, reach, keys = self._ctx, self._pattern.window, self._key_positions[near]
        back = step.token_index[queries, None] - keys
        visible = back >= 0 if reach.causal else torch.ones_like(back, dtype=torch.bool)
        if reach.size is not None:
            visible = visible & (back.abs() < reach.size)
        if reach.chunk is not None:
            mine, theirs = step.positions[..., queries, None] // reach.chunk, step.to_positions(keys)[..., None, :] // reach.chunk
            visible = visible & (mine == theirs)
        if step.padding is None:
            return visible
        real = keys >= step.padding[:, None, None]
        return ((visible & real) | (back == 0))[:, None]


def _alibi_slopes(alibi: Alibi, heads: int) -> Tensor:
    """One for each head."""
    power = 1 << (heads.bit_length() - 1)
    own = [2 ** (-alibi.max_bias * i / power) for i in range(1, power + 1)]
    between = [2 ** (-alibi.max_bias * i / (2 * power)) for i in range(1, 2 * (heads - power) + 1, 2)]
    slopes = torch.tensor(own + between)
    return slopes.bfloat16().float() if alibi.bf16_rounded else slopes
