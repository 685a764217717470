"""The recurrence of mixers that carry a state: S ← eᵍ S + k ⊗ u, y = Sᵀ q in each head, for a chunk of tokens at a time.

Inside a chunk it is three products of matrices, as if it were attention without a softmax, with eᵍ multiplied up between the two tokens;
only the state goes from chunk to chunk (Dao and Gu 2024, arXiv:2405.21060, section 6). The delta rule writes u = s (v − (eᵍ S)ᵀ k), which
depends on what the tokens before it have written: a triangular system for each chunk (Yang et al. 2024, arXiv:2406.06484, section 3, and
arXiv:2412.06464 with g). A chunk of one token is the recurrence as it stands.

In shapes: B rows, G groups of r heads that share q and k, T tokens, n the size of q and k, m that of u and y.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 32
"""Tokens at a time: with more, most of the work is between tokens; with fewer, on the state."""


class RecurrenceInputs(NamedTuple):
    """What tokens, or a chunk of them, ask and write: q and k `(B, G, 1, T, n)`, v `(B, G, r, T, m)`, g and s `(B, G, r, T)`."""

    q: Tensor
    k: Tensor
    v: Tensor  # u itself where there is no s
    g: Tensor
    beta: Tensor | None = None

    @classmethod
    def from_heads(cls, qkv: tuple[Tensor, Tensor, Tensor], g: Tensor, s: Tensor | None = None) -> RecurrenceInputs:
        """From q and k `(B, T, G, n)`, v `(B, T, G · r, m)`, g and s `(B, T, G · r)`."""
        q, k, v = (x.transpose(1, 2) for x in qkv)
        groups = (q.shape[1], -1)
        each = (x.mT.unflatten(1, groups) for x in (g, s) if x is not None)
        return cls(q[:, :, None], k[:, :, None], v.unflatten(1, groups), *each)

    def chunks(self) -> list[RecurrenceInputs]:
        """The tokens in their order, the last chunk as short as it is."""
        parts = zip(*(x.split(CHUNK, 3) for x in self if x is not None), strict=True)
        return [RecurrenceInputs(*part) for part in parts]


def linear_recurrence(tokens: RecurrenceInputs, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """What is read from the state by each token, `(B, T, G · r, m)`, and the state after the last, `(B, G · r, n, m)`."""
    shape = *tokens.v.shape[:3], tokens.k.shape[-1], tokens.v.shape[-1]
    carried = tokens.v.new_zeros(shape) if state is None else state.view(shape)
    given = []
    for chunk in tokens.chunks():
        y, carried = _chunk(chunk, carried)
        given.append(y)
    return torch.cat(given, 3).flatten(1, 2).transpose(1, 2), carried.flatten(1, 2)


def _chunk(x: RecurrenceInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """A chunk's y, and the state after it."""
    kept = _decay_matrix(x.g)  # (B, G, r, T, T)
    since = x.g.cumsum(-1).exp()[..., None]  # (B, G, r, T, 1), of what was there before the chunk
    if x.beta is None:
        u = x.v
    else:
        s = x.beta[..., None]
        u = torch.linalg.solve_triangular(s * (x.k @ x.k.mT) * kept, s * (x.v - since * (x.k @ state)), upper=False, unitriangular=True)
    y = since * (x.q @ state) + ((x.q @ x.k.mT) * kept) @ u
    return y, since[..., -1:, :] * state + x.k.mT @ (kept[..., -1, :, None] * u)


def _decay_matrix(g: Tensor) -> Tensor:
    """At t and i what is left after t of what i has written, e to the sum of g over i + 1 … t; 0 before i.

    Each sum is its own: differences of sums over all would lose the digits that long decays have in common.
    """
    tokens = g.shape[-1]
    return g[..., None].expand(*g.shape, tokens).tril(-1).cumsum(-2).exp().tril()
