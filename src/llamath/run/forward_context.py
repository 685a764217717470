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
from .kv_cache import Cache, seen
from .rope import STRETCHING, Turn, angles


class Sight(NamedTuple):
    """What a query may look at, and what Alibi adds for how far away it is."""

    reach: AttentionWindow
    alibi: Alibi | None = None
    heads: int = 0  # that Alibi gives slopes to
    first: int = 0  # of them, of those that are here
    last: int | None = None

    @property
    def room(self) -> int | None:
        """How many tokens back it reaches; None: all of them."""
        return self.reach.size or self.reach.chunk


class Part(NamedTuple):
    """Some queries and the keys that any of them sees; what is added to their scores, or which of these count.

    `causal` stands for the triangle, which needs no numbers.
    """

    queries: slice = slice(None)
    keys: slice = slice(None)
    values: Tensor | None = None
    causal: bool = False


class Step:
    """T tokens for each row of a batch, after the `past` others that a cache knows of."""

    def __init__(self, tokens: Tensor, cache: Cache) -> None:
        self.cache, self.past, self.new = cache, cache.length, tokens.shape[-1]
        self.pads, self.device = cache.pads, tokens.device
        self.index = torch.arange(self.past, self.past + self.new, device=tokens.device)
        self.positions = self.placed(self.index)  # (T,), or (B, T) if rows are padded
        self.beside: Tensor | None = None  # (B, T, L, p), what each layer is told of each token besides
        self._turns: dict[int, Turn] = {}
        self._spins: dict[int, Tensor] = {}
        self._masks: dict[tuple[Sight, int], Mask] = {}

    def placed(self, index: Tensor) -> Tensor:
        """Positions of tokens, counted in each row from the first that is no padding."""
        return index if self.pads is None else (index - self.pads[:, None]).clamp(min=0)

    @property
    def length(self) -> int:
        """How many tokens the longest row has, without padding."""
        return self.past + self.new - (0 if self.pads is None else int(self.pads.min()))

    @property
    def real(self) -> Tensor | None:
        """Which tokens of this pass are no padding, `(B, T, 1)`; None: all."""
        return None if self.pads is None else (self.index >= self.pads[:, None])[..., None]

    def turn(self, rope: Rope | None) -> Turn | None:
        """The rotation of this pass's tokens."""
        if rope is None:
            return None
        if id(rope) not in self._turns:
            self._turns[id(rope)] = self._turn(rope)
        return self._turns[id(rope)]

    def spin(self, rope: Rope) -> Tensor:
        """The same as one complex number for each pair."""
        if id(rope) not in self._spins:
            turn = self._turn(rope)
            self._spins[id(rope)] = torch.complex(turn.cos, turn.sin)
        return self._spins[id(rope)]

    def _turn(self, rope: Rope) -> Turn:
        end = self.cache.first if isinstance(rope, QwenDynamicRope) else self.past + self.new
        if self.pads is None or not isinstance(rope, STRETCHING):
            cos, sin = angles(rope, self.positions, end)
        else:
            rows = [angles(rope, row, end - int(pad)) for row, pad in zip(self.positions, self.pads, strict=True)]
            cos, sin = (torch.stack(part) for part in zip(*rows, strict=True))
        return Turn(cos.unsqueeze(-2), sin.unsqueeze(-2), rope.interleaved)

    def warmth(self, temperature: TemperatureTuning | LogNScaling) -> Tensor:
        """What queries are multiplied by, `(T, 1, 1)` or `(B, T, 1, 1)`."""
        t = self.positions.float()
        if isinstance(temperature, TemperatureTuning):
            grown = 1 + temperature.scale * torch.log(1 + torch.floor((t + temperature.offset) / temperature.floor))
        else:
            grown = (torch.log(t + 1) / torch.log(torch.tensor(float(temperature.original_context)))).clamp(min=1)
        return grown[..., None, None]

    def keys(self, room: int) -> Tensor:
        """For which tokens the keys stand that a memory of this room gives, `(S,)`."""
        return seen(self.new, self.past, room).to(self.device)

    def mask(self, sight: Sight, room: int) -> Mask:
        """What the queries of this pass see of those keys."""
        if (sight, room) not in self._masks:
            self._masks[sight, room] = Mask(self, sight, room)
        return self._masks[sight, room]


SCORES = 1 << 25
"""No more scores than this at once, unless few queries have as many."""
FEW, SHARE = 16, 4
"""At least so many queries at once; and at most this part of what each of them sees, beyond which most keys are seen by few."""


class Mask:
    """What the queries of a pass see of the keys that a memory of some room gives."""

    def __init__(self, step: Step, sight: Sight, room: int) -> None:
        self._step, self._sight, self._room = step, sight, room
        near = sight.room is None or step.past + step.new <= sight.room
        ring = step.new == 1 and room == sight.reach.size  # it holds what is in the window, and nothing else
        easy = step.pads is None and sight.alibi is None and sight.reach.causal and (near or ring)
        self._plain = easy and (step.new == 1 or not step.past)

    def fits(self, heads: int, fused: bool) -> bool:
        """Whether all queries may be taken at once; so may a triangle where a kernel that keeps no scores is to work it out."""
        return self._step.new == 1 or (self._plain and fused) or self._step.new <= self._size(heads)

    @cached_property
    def whole(self) -> Part:
        """All queries and all keys."""
        return Part(causal=self._step.new > 1) if self._plain else self._part(slice(None), slice(None))

    def parts(self, heads: int) -> Iterator[Part]:
        """Some queries after the others, each with no more keys than they need."""
        size = self._size(heads)
        for first in range(0, self._step.new, size):
            queries = slice(first, min(first + size, self._step.new))
            yield self._part(queries, self._near(queries))

    @cached_property
    def _keys(self) -> Tensor:
        return self._step.keys(self._room)

    def _size(self, heads: int) -> int:
        """How many queries to take at once."""
        seen = min(self._sight.room or len(self._keys), len(self._keys))
        return max(FEW, min(SCORES // (heads * seen), max(seen, 512) // SHARE))

    def _near(self, queries: slice) -> slice:
        """The keys that any of these queries sees, where they stand in the order of their tokens."""
        reach, back = self._sight.reach, self._sight.room
        before = len(self._keys) - self._step.new  # keys of the tokens before this pass
        first = 0 if back is None else max(0, before + queries.start - back + 1)
        if reach.causal:
            return slice(first, before + queries.stop)
        return slice(first, None if back is None else before + queries.stop + back - 1)

    def _part(self, queries: slice, near: slice) -> Part:
        visible = self._visible(queries, near)
        alibi = self._sight.alibi
        if alibi is None:
            return Part(queries, near, visible)
        slopes = _slopes(alibi, self._sight.heads)[self._sight.first : self._sight.last].to(self._step.device)
        bias = slopes[:, None, None] * self._step.placed(self._keys[near]).float()[..., None, None, :]
        bias = (bias.bfloat16().float() if alibi.bf16_rounded else bias) * alibi.scale
        return Part(queries, near, bias.masked_fill(~visible, -torch.inf))

    def _visible(self, queries: slice, near: slice) -> Tensor:
        """Which query sees which key, `(T, S)` or `(B, 1, T, S)`; padding sees itself, so that no row is empty."""
        step, reach, keys = self._step, self._sight.reach, self._keys[near]
        back = step.index[queries, None] - keys
        visible = back >= 0 if reach.causal else torch.ones_like(back, dtype=torch.bool)
        if reach.size is not None:
            visible = visible & (back.abs() < reach.size)
        if reach.chunk is not None:
            mine, theirs = step.positions[..., queries, None] // reach.chunk, step.placed(keys)[..., None, :] // reach.chunk
            visible = visible & (mine == theirs)
        if step.pads is None:
            return visible
        real = keys >= step.pads[:, None, None]
        return ((visible & real) | (back == 0))[:, None]


def _slopes(alibi: Alibi, heads: int) -> Tensor:
    """One for each head."""
    power = 1 << (heads.bit_length() - 1)
    own = [2 ** (-alibi.max_bias * i / power) for i in range(1, power + 1)]
    between = [2 ** (-alibi.max_bias * i / (2 * power)) for i in range(1, 2 * (heads - power) + 1, 2)]
    slopes = torch.tensor(own + between)
    return slopes.bfloat16().float() if alibi.bf16_rounded else slopes
