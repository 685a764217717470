"""`Cache`: what a model remembers of the tokens it has read, one memory for each layer.

A memory's room is taken when it is first used, all of it at once, in the shape and type of what it is to hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.errors import LlamathError


class Keys:
    """Keys and values of the last `room` tokens, `(B, K, room, h)` each; a newer one takes the place of the oldest.

    With no room it hands on what it is given: a pass without a cache.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.rows: tuple[Tensor, ...] = ()
        self.held: tuple[Tensor, ...] = ()  # what this pass may look at, in the order of `seen`

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What is remembered."""
        return self.rows

    def add(self, new: tuple[Tensor, ...], past: int) -> tuple[Tensor, ...]:
        """Remember T more tokens after `past` others: those that this pass may look at."""
        if not self.room:
            self.held = new
            return new
        if not self.rows:
            self.rows = tuple(x.new_zeros(*x.shape[:-2], self.room, x.shape[-1]) for x in new)
        end = past + new[0].shape[-2]
        fits = end <= self.room or new[0].shape[-2] == 1
        before = () if fits else self._before(past)
        for rows, x in zip(self.rows, new, strict=True):
            _place(rows, x, past)
        if fits:
            self.held = tuple(rows[..., : min(end, self.room), :] for rows in self.rows)
        else:
            self.held = tuple(torch.cat(both, -2) for both in zip(before, new, strict=True))
        return self.held

    def keep(self, rows: Tensor) -> None:
        """Forget the other rows of the batch."""
        self.rows, self.held = tuple(x[rows] for x in self.rows), ()

    def grow(self, room: int) -> None:
        """Take more room, while nothing has been forgotten yet."""
        more = room - self.room
        self.rows = tuple(torch.cat((x, x.new_zeros(*x.shape[:-2], more, x.shape[-1])), -2) if more else x for x in self.rows)
        self.room, self.held = room, ()

    def _before(self, past: int) -> tuple[Tensor, ...]:
        """What is remembered so far, oldest first."""
        order = seen(0, past, self.room) % self.room
        return tuple(rows[..., order.to(rows.device), :] for rows in self.rows)


def _place(rows: Tensor, x: Tensor, past: int) -> None:
    """Write tokens from `past` on into their places, the last ones if there is no room for all."""
    room, end = rows.shape[-2], past + x.shape[-2]
    first = max(past, end - room)
    x, at = x[..., first - past :, :], first % room
    wrapped = max(at + x.shape[-2] - room, 0)
    straight = x.shape[-2] - wrapped
    rows[..., at : at + straight, :] = x[..., :straight, :]
    if wrapped:
        rows[..., :wrapped, :] = x[..., straight:, :]


def seen(new: int, past: int, room: int) -> Tensor:
    """For which tokens, counted from the first, the keys stand that a memory gives to a pass over `new` tokens."""
    if new == 1 and room and past >= room:
        return past - (past - torch.arange(room)) % room
    return torch.arange(past - min(past, room or past), past + new)


class State:
    """What a mixer carries from token to token, of a size that does not grow: the convolution's last inputs, and the state."""

    def __init__(self) -> None:
        self.taps: Tensor | None = None
        self.state: Tensor | None = None

    def keep(self, rows: Tensor) -> None:
        """Forget the other rows of the batch."""
        self.taps, self.state = (None if x is None else x[rows] for x in (self.taps, self.state))

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What is remembered."""
        return tuple(x for x in (self.taps, self.state) if x is not None)


Memory = Keys | State | None


class Cache:
    """The memories of all layers, with how many tokens they are of, and how many of each row's are padding on the left."""

    def __init__(self, memories: Sequence[Memory], room: int) -> None:
        self.memories = list(memories)
        self.room = room
        self.length = self.first = 0  # of all that was read, and of the first pass
        self.pads: Tensor | None = None  # (B,)

    def admit(self, new: int, pads: Tensor | None) -> None:
        """Refuse what there is no room for; padding comes with the first tokens."""
        if self.room and self.length + new > self.room:
            raise LlamathError(f"{self.length + new} tokens do not fit a cache for {self.room}", hint="a shorter prompt, or a larger cache")
        self.first = self.first or new
        if pads is not None:
            assert not self.length, "padding stands before the first token"
            self.pads = pads

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows of the batch alone."""
        for memory in self.memories:
            if memory is not None:
                memory.keep(rows)
        self.pads = None if self.pads is None else self.pads[rows]

    def grow(self, larger: Cache) -> None:
        """Take the room of an empty cache that has more of it."""
        for memory, other in zip(self.memories, larger.memories, strict=True):
            if isinstance(memory, Keys) and isinstance(other, Keys):
                memory.grow(other.room)
        self.room = larger.room

    def cut(self, length: int) -> bool:
        """Forget what comes after so many tokens; False, and nothing done, where what came before is no longer there."""
        if length < self.length and any(not isinstance(m, Keys) or self.length > m.room for m in self.memories if m is not None):
            return False
        self.length = length
        return True

    @property
    def bytes(self) -> int:
        """What it takes."""
        kept = {id(x): x.kept for x in self.memories if x is not None}
        return sum(x.nbytes for rows in kept.values() for x in rows)
