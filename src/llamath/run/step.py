"""`Step`: one pass over some tokens; what its layers share, positions, rotations and masks, is worked out once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..passes import Reach
from ..positions import Alibi, LogTemperature, Rope, SteppedRope, Temperature
from .cache import Cache, seen
from .rope import STRETCHING, Turn, angles


class Sight(NamedTuple):
    """What a query may look at, and what Alibi adds for how far away it is."""

    reach: Reach
    alibi: Alibi | None = None
    heads: int = 0  # that Alibi gives slopes to
    first: int = 0  # of them, of those that are here
    last: int | None = None

    @property
    def room(self) -> int | None:
        """How many tokens back it reaches; None: all of them."""
        return self.reach.window or self.reach.chunk


class Mask(NamedTuple):
    """What is added to scores, or which of them count; `causal` stands for the triangle, which needs no numbers."""

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
        end = self.cache.first if isinstance(rope, SteppedRope) else self.past + self.new
        if self.pads is None or not isinstance(rope, STRETCHING):
            cos, sin = angles(rope, self.positions, end)
        else:
            rows = [angles(rope, row, end - int(pad)) for row, pad in zip(self.positions, self.pads, strict=True)]
            cos, sin = (torch.stack(part) for part in zip(*rows, strict=True))
        return Turn(cos.unsqueeze(-2), sin.unsqueeze(-2), rope.interleaved)

    def warmth(self, temperature: Temperature | LogTemperature) -> Tensor:
        """What queries are multiplied by, `(T, 1, 1)` or `(B, T, 1, 1)`."""
        t = self.positions.float()
        if isinstance(temperature, Temperature):
            grown = 1 + temperature.scale * torch.log(1 + torch.floor((t + temperature.offset) / temperature.floor))
        else:
            grown = (torch.log(t + 1) / torch.log(torch.tensor(float(temperature.original)))).clamp(min=1)
        return grown[..., None, None]

    def keys(self, room: int) -> Tensor:
        """For which tokens the keys stand that a memory of this room gives, `(S,)`."""
        return seen(self.new, self.past, room).to(self.device)

    def mask(self, sight: Sight, room: int) -> Mask:
        """What the queries of this pass see of those keys."""
        if (sight, room) not in self._masks:
            self._masks[sight, room] = self._mask(sight, room)
        return self._masks[sight, room]

    def _mask(self, sight: Sight, room: int) -> Mask:
        near = sight.room is None or self.past + self.new <= sight.room
        ring = self.new == 1 and room == sight.reach.window  # it holds what is in the window, and nothing else
        if self.pads is None and sight.alibi is None and sight.reach.causal and (near or ring):
            if self.new == 1:
                return Mask()
            if not self.past:
                return Mask(causal=True)
        keys = self.keys(room)
        visible = self._visible(sight.reach, keys)
        if sight.alibi is None:
            return Mask(visible)
        slopes = _slopes(sight.alibi, sight.heads)[sight.first : sight.last].to(self.device)
        bias = slopes[:, None, None] * self.placed(keys).float()[..., None, None, :]
        bias = (bias.bfloat16().float() if sight.alibi.rounded else bias) * sight.alibi.scale
        return Mask(bias.masked_fill(~visible, -torch.inf))

    def _visible(self, reach: Reach, keys: Tensor) -> Tensor:
        """Which query sees which key, `(T, S)` or `(B, 1, T, S)`; padding sees itself, so that no row is empty."""
        back = self.index[:, None] - keys
        visible = back >= 0 if reach.causal else torch.ones_like(back, dtype=torch.bool)
        if reach.window is not None:
            visible = visible & (back.abs() < reach.window)
        if reach.chunk is not None:
            mine, theirs = self.positions[..., None] // reach.chunk, self.placed(keys)[..., None, :] // reach.chunk
            visible = visible & (mine == theirs)
        if self.pads is None:
            return visible
        real = keys >= self.pads[:, None, None]
        return ((visible & real) | (back == 0))[:, None]


def _slopes(alibi: Alibi, heads: int) -> Tensor:
    """One for each head."""
    power = 1 << (heads.bit_length() - 1)
    own = [2 ** (-alibi.max * i / power) for i in range(1, power + 1)]
    between = [2 ** (-alibi.max * i / (2 * power)) for i in range(1, 2 * (heads - power) + 1, 2)]
    slopes = torch.tensor(own + between)
    return slopes.bfloat16().float() if alibi.rounded else slopes
