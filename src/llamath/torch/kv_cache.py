"""`Cache`: keys, values and recurrent states of the tokens read so far, one entry per layer.

A layer's buffers are allocated at its first pass, for the full capacity and in the shape and dtype
of its first tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..utils.errors import LlamathError


class KVCache:
    """Keys and values of the last `capacity` tokens, `(B, K, capacity, h)` each, as a ring buffer.

    With capacity 0 nothing is stored: `update` returns its input, as for a pass without a cache.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.buffers: tuple[Tensor, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The buffers."""
        return self.buffers

    def update(self, new: tuple[Tensor, ...], past: int) -> tuple[Tensor, ...]:
        """Store T tokens that follow `past` others; return the keys and values of the tokens at
        `key_positions`.
        """
        if not self.capacity:
            return new
        if not self.buffers:
            self.buffers = tuple(
                x.new_zeros(*x.shape[:-2], self.capacity, x.shape[-1]) for x in new
            )
        end = past + new[0].shape[-2]
        fits = end <= self.capacity or new[0].shape[-2] == 1
        before = () if fits else self._oldest_first(past)
        for buffer, x in zip(self.buffers, new, strict=True):
            _write(buffer, x, past)
        if fits:
            return tuple(buffer[..., : min(end, self.capacity), :] for buffer in self.buffers)
        return tuple(torch.cat(both, -2) for both in zip(before, new, strict=True))

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self.buffers = tuple(x[rows] for x in self.buffers)

    def grow(self, capacity: int) -> None:
        """Enlarge the buffers; valid while no token has been overwritten."""
        more = capacity - self.capacity
        self.buffers = tuple(
            torch.cat((x, x.new_zeros(*x.shape[:-2], more, x.shape[-1])), -2) if more else x
            for x in self.buffers
        )
        self.capacity = capacity

    def _oldest_first(self, past: int) -> tuple[Tensor, ...]:
        """The stored tokens that a next one attends to, in their order."""
        order = key_positions(0, past, self.capacity) % self.capacity
        return tuple(buffer[..., order.to(buffer.device), :] for buffer in self.buffers)


def _write(buffer: Tensor, x: Tensor, past: int) -> None:
    """Write tokens from index `past` on into their slots of the ring; only the last ones if
    there are more tokens than slots.
    """
    capacity, end = buffer.shape[-2], past + x.shape[-2]
    first = max(past, end - capacity)
    x, slot = x[..., first - past :, :], first % capacity
    wrapped = max(slot + x.shape[-2] - capacity, 0)
    straight = x.shape[-2] - wrapped
    buffer[..., slot : slot + straight, :] = x[..., :straight, :]
    if wrapped:
        buffer[..., :wrapped, :] = x[..., straight:, :]


def key_positions(new: int, past: int, capacity: int) -> Tensor:
    """Return the token index of each key that a KV cache of this capacity returns in a pass over
    `new` tokens.

    Of the earlier tokens, the first new one attends to the last `capacity` − 1.
    """
    if new == 1 and capacity and past >= capacity:
        return past - (past - torch.arange(capacity)) % capacity
    return torch.arange(past - min(past, capacity - 1 if capacity else past), past + new)


class RecurrentState:
    """State of fixed size that a recurrent mixer carries from token to token: the convolutions'
    last inputs and the state matrix.
    """

    def __init__(self) -> None:
        self.conv_states: dict[int, Tensor] = {}  # by the identity of the convolution
        self.recurrent_state: Tensor | None = None

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self.conv_states = {key: x[rows] for key, x in self.conv_states.items()}
        self.recurrent_state = None if self.recurrent_state is None else self.recurrent_state[rows]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that have been set."""
        return tuple(x for x in (*self.conv_states.values(), self.recurrent_state) if x is not None)


class WindowCache:
    """The vectors of complete windows of tokens, `(B, W, 1, h)`, and the tokens of the next
    window and of those that it overlaps.
    """

    def __init__(self, kept_tokens: int) -> None:
        self.kept_tokens = kept_tokens
        self.tokens: tuple[Tensor, ...] = ()
        self.windows: Tensor | None = None

    def add_tokens(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the new tokens `(B, T, c)` after those that are kept, and keep the last ones."""
        joined = (
            tuple(torch.cat(both, 1) for both in zip(self.tokens, new, strict=True))
            if self.tokens
            else new
        )
        self.tokens = tuple(x[:, max(x.shape[1] - self.kept_tokens, 0) :].clone() for x in joined)
        return joined

    def add_windows(self, new: Tensor, first: Tensor, total: int) -> Tensor:
        """Write the windows of each row from number `first` on, `(B,)`; return all, `total` of
        them.
        """
        after = new.new_zeros(len(new), total, *new.shape[2:])
        if self.windows is not None:
            after[:, : self.windows.shape[1]] = self.windows
        at = first[:, None] + torch.arange(new.shape[1])
        rows, columns = torch.nonzero(at < total, as_tuple=True)
        after[rows, at[rows, columns]] = new[rows, columns]
        self.windows = after
        return after

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self.tokens = tuple(x[rows] for x in self.tokens)
        self.windows = None if self.windows is None else self.windows[rows]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that have been set."""
        return (*self.tokens, *(() if self.windows is None else (self.windows,)))


LayerCache = KVCache | RecurrentState | WindowCache | None


class Cache:
    """The caches of all layers, the number of tokens read, and the number of padding tokens on
    the left of each row.
    """

    def __init__(self, layers: Sequence[LayerCache], capacity: int) -> None:
        self.layers = list(layers)
        self.capacity = capacity
        self.length = 0  # tokens read so far
        self.prefill_length = 0  # tokens of the first pass
        self.padding: Tensor | None = None  # (B,)
        # keys and values of the encoder's tokens, by layer
        self.encoded: dict[int, tuple[Tensor, ...]] = {}

    def reserve(self, new: int, padding: Tensor | None) -> None:
        """Raise an error if `new` more tokens exceed the capacity; `padding` is given with the
        first tokens only.
        """
        if self.capacity and self.length + new > self.capacity:
            raise LlamathError(
                f"the KV cache has room for {self.capacity} tokens, found {self.length + new}",
                hint="use a shorter prompt or a larger cache",
            )
        self.prefill_length = self.prefill_length or new
        if padding is not None:
            assert not self.length, "padding precedes the first token"
            self.padding = padding

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        for layer in self.layers:
            if layer is not None:
                layer.select_rows(rows)
        self.encoded = {layer: tuple(x[rows] for x in kept) for layer, kept in self.encoded.items()}
        self.padding = None if self.padding is None else self.padding[rows]

    def grow(self, larger: Cache) -> None:
        """Take over the capacities of an empty, larger cache."""
        for layer, other in zip(self.layers, larger.layers, strict=True):
            if isinstance(layer, KVCache) and isinstance(other, KVCache):
                layer.grow(other.capacity)
        self.capacity = larger.capacity

    def truncate(self, length: int) -> bool:
        """Drop all tokens after the first `length`; return False, unchanged, where the earlier
        state is no longer available.
        """
        if length < self.length and any(
            not isinstance(x, KVCache) or self.length > x.capacity
            for x in self.layers
            if x is not None
        ):
            return False
        self.length = length
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers and states."""
        layers = {id(x): x.tensors for x in self.layers if x is not None}
        return sum(
            x.nbytes for tensors in (*layers.values(), *self.encoded.values()) for x in tensors
        )
