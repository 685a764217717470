"""`Cache`: what a model remembers of the tokens it has read, one memory for each layer.

A memory's room is taken when it is first used, all of it at once, in the shape and type of what it is to hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.errors import LlamathError


class KVCache:
    """Keys and values of the last `room` tokens, `(B, K, room, h)` each; a newer one takes the place of the oldest.

    With no room it hands on what it is given: a pass without a cache.
    """

    def __init__(self, room: int) -> None:
        self.capacity = room
        self.buffers: tuple[Tensor, ...] = ()
        self.visible: tuple[Tensor, ...] = ()  # what this pass may look at, in the order of `seen`

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What is remembered."""
        return self.buffers

    def update(self, new: tuple[Tensor, ...], past: int) -> tuple[Tensor, ...]:
        """Remember T more tokens after `past` others: those that this pass may look at."""
        if not self.capacity:
            self.visible = new
            return new
        if not self.buffers:
            self.buffers = tuple(x.new_zeros(*x.shape[:-2], self.capacity, x.shape[-1]) for x in new)
        end = past + new[0].shape[-2]
        fits = end <= self.capacity or new[0].shape[-2] == 1
        before = () if fits else self._oldest_first(past)
        for rows, x in zip(self.buffers, new, strict=True):
            _write(rows, x, past)
        if fits:
            self.visible = tuple(rows[..., : min(end, self.capacity), :] for rows in self.buffers)
        else:
            self.visible = tuple(torch.cat(both, -2) for both in zip(before, new, strict=True))
        return self.visible

    def select_rows(self, rows: Tensor) -> None:
        """Forget the other rows of the batch."""
        self.buffers, self.visible = tuple(x[rows] for x in self.buffers), ()

    def grow(self, room: int) -> None:
        """Take more room, while nothing has been forgotten yet."""
        more = room - self.capacity
        self.buffers = tuple(torch.cat((x, x.new_zeros(*x.shape[:-2], more, x.shape[-1])), -2) if more else x for x in self.buffers)
        self.capacity, self.visible = room, ()

    def _oldest_first(self, past: int) -> tuple[Tensor, ...]:
        """What is remembered so far, oldest first."""
        order = key_positions(0, past, self.capacity) % self.capacity
        return tuple(rows[..., order.to(rows.device), :] for rows in self.buffers)


def _write(rows: Tensor, x: Tensor, past: int) -> None:
    """Write tokens from `past` on into their places, the last ones if there is no room for all."""
    room, end = rows.shape[-2], past + x.shape[-2]
    first = max(past, end - room)
    x, at = x[..., first - past :, :], first % room
    wrapped = max(at + x.shape[-2] - room, 0)
    straight = x.shape[-2] - wrapped
    rows[..., at : at + straight, :] = x[..., :straight, :]
    if wrapped:
        rows[..., :wrapped, :] = x[..., straight:, :]


def key_positions(new: int, past: int, room: int) -> Tensor:
    """For which tokens, counted from the first, the keys stand that a memory gives to a pass over `new` tokens."""
    if new == 1 and room and past >= room:
        return past - (past - torch.arange(room)) % room
    return torch.arange(past - min(past, room or past), past + new)


class RecurrentState:
    """What a mixer carries from token to token, of a size that does not grow: the convolution's last inputs, and the state."""

    def __init__(self) -> None:
        self.conv_state: Tensor | None = None
        self.recurrent_state: Tensor | None = None

    def select_rows(self, rows: Tensor) -> None:
        """Forget the other rows of the batch."""
        self.conv_state, self.recurrent_state = (None if x is None else x[rows] for x in (self.conv_state, self.recurrent_state))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What is remembered."""
        return tuple(x for x in (self.conv_state, self.recurrent_state) if x is not None)


LayerCache = KVCache | RecurrentState | None


class Cache:
    """The memories of all layers, with how many tokens they are of, and how many of each row's are padding on the left."""

    def __init__(self, memories: Sequence[LayerCache], room: int) -> None:
        self.layers = list(memories)
        self.capacity = room
        self.length = self.prefill_length = 0  # of all that was read, and of the first pass
        self.padding: Tensor | None = None  # (B,)

    def reserve(self, new: int, padding: Tensor | None) -> None:
        """Refuse what there is no room for; padding comes with the first tokens."""
        if self.capacity and self.length + new > self.capacity:
            raise LlamathError(
                f"{self.length + new} tokens do not fit a cache for {self.capacity}", hint="a shorter prompt, or a larger cache"
            )
        self.prefill_length = self.prefill_length or new
        if padding is not None:
            assert not self.length, "padding stands before the first token"
            self.padding = padding

    def select_rows(self, rows: Tensor) -> None:
        """Go on with these rows of the batch alone."""
        for memory in self.layers:
            if memory is not None:
                memory.select_rows(rows)
        self.padding = None if self.padding is None else self.padding[rows]

    def grow(self, larger: Cache) -> None:
        """Take the room of an empty cache that has more of it."""
        for memory, other in zip(self.layers, larger.layers, strict=True):
            if isinstance(memory, KVCache) and isinstance(other, KVCache):
                memory.grow(other.capacity)
        self.capacity = larger.capacity

    def truncate(self, length: int) -> bool:
        """Forget what comes after so many tokens; False, and nothing done, where what came before is no longer there."""
        if length < self.length and any(not isinstance(m, KVCache) or self.length > m.capacity for m in self.layers if m is not None):
            return False
        self.length = length
        return True

    @property
    def nbytes(self) -> int:
        """What it takes."""
        kept = {id(x): x.tensors for x in self.layers if x is not None}
        return sum(x.nbytes for rows in kept.values() for x in rows)
