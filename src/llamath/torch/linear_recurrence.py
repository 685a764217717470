"""`linear_recurrence`: the recurrence of the gated delta rule and of Mamba-2, in chunks of tokens;
`selective_scan`: that of Mamba.

It computes S ← eᵍ S + k ⊗ u, y = Sᵀ q in each head, one chunk of tokens at a time. Inside a chunk
it is three matrix products, like attention without a softmax, with the product of eᵍ between two
tokens as a factor; only the state passes from chunk to chunk (Dao and Gu 2024, arXiv:2405.21060,
section 6). The delta rule writes u = β (v − (eᵍ S)ᵀ k), which depends on what earlier tokens have
written: a triangular system in each chunk (Yang et al. 2024, arXiv:2406.06484, section 3, and
arXiv:2412.06464 with g). A chunk of one token is the recurrence itself.

Letters in shapes: B rows, G groups of r heads that share q and k, T tokens, n the size of q and k,
m that of u and y.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 32
"""Tokens in a chunk: with more, most of the work is between tokens; with fewer, on the state."""


SCAN_CHUNK = 16
"""Tokens whose states `selective_scan` holds at once."""


class RecurrenceInputs(NamedTuple):
    """Inputs of `linear_recurrence`: q and k `(B, G, 1, T, n)`, v `(B, G, r, T, m)`, log decay g
    and β `(B, G, r, T)`.

    With a decay for each row of the state, g is `(B, G, r, T, n)`.
    """

    q: Tensor
    k: Tensor
    v: Tensor  # u itself without beta
    g: Tensor
    beta: Tensor | None = None

    @classmethod
    def from_heads(
        cls, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None = None
    ) -> RecurrenceInputs:
        """Arrange q and k `(B, T, G, n)`, v `(B, T, G · r, m)`, g `(B, T, G · r)` or `(B, T, G ·
        r, n)`, and beta `(B, T, G · r)`.
        """
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        groups = (q.shape[1], -1)
        per_head = (x.transpose(1, 2).unflatten(1, groups) for x in (g, beta) if x is not None)
        return cls(q[:, :, None], k[:, :, None], v.unflatten(1, groups), *per_head)

    def chunks(self, size: int) -> list[RecurrenceInputs]:
        """Split the tokens into chunks; the last one may be shorter."""
        parts = zip(*(x.split(size, 3) for x in self if x is not None), strict=True)
        return [RecurrenceInputs(*part) for part in parts]


def linear_recurrence(
    inputs: RecurrenceInputs, state: Tensor | None, chunk_size: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Return each token's output, `(B, T, G · r, m)`, and the state after the last token, `(B, G
    · r, n, m)`.
    """
    shape = *inputs.v.shape[:3], inputs.k.shape[-1], inputs.v.shape[-1]
    carried = inputs.v.new_zeros(shape) if state is None else state.view(shape)
    outputs, compute = [], _chunk_by_row if inputs.g.dim() == inputs.q.dim() else _chunk
    for chunk in inputs.chunks(chunk_size):
        y, carried = compute(chunk, carried)
        outputs.append(y)
    return torch.cat(outputs, 3).flatten(1, 2).transpose(1, 2), carried.flatten(1, 2)


def _chunk(x: RecurrenceInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return a chunk's outputs and the state after it."""
    decay = _decay_matrix(x.g)  # (B, G, r, T, T)
    state_decay = x.g.cumsum(-1).exp()[..., None]  # (B, G, r, T, 1), of the state before the chunk
    if x.beta is None:
        u = x.v
    else:
        beta = x.beta[..., None]
        residual = beta * (x.v - state_decay * (x.k @ state))
        u = torch.linalg.solve_triangular(
            beta * (x.k @ x.k.mT) * decay, residual, upper=False, unitriangular=True
        )
    y = state_decay * (x.q @ state) + ((x.q @ x.k.mT) * decay) @ u
    return y, state_decay[..., -1:, :] * state + x.k.mT @ (decay[..., -1, :, None] * u)


def _chunk_by_row(x: RecurrenceInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return a chunk's outputs and the state after it, of the delta rule with a decay for each row
    of the state.

    A product of two tokens' vectors has a factor for each channel, so it is no matrix product (Kimi
    Linear, arXiv:2510.26692).
    """
    assert x.beta is not None
    beta, decay = x.beta[..., None], _decay_matrix(x.g.mT).movedim(-3, -1)  # (B, G, r, T, T, n)
    state_decay = x.g.cumsum(-2).exp()  # (B, G, r, T, n), of the state before the chunk
    keys = x.k[..., None, :, :] * decay
    residual = beta * (x.v - (state_decay * x.k) @ state)
    overlap = (x.k[..., None, :] * keys).sum(-1)  # (B, G, r, T, T)
    u = torch.linalg.solve_triangular(beta * overlap, residual, upper=False, unitriangular=True)
    y = (state_decay * x.q) @ state + (x.q[..., None, :] * keys).sum(-1) @ u
    return y, state_decay[..., -1, :, None] * state + keys[..., -1, :, :].mT @ u


def _decay_matrix(g: Tensor) -> Tensor:
    """At (t, i) the factor on token i's write at token t: e to the sum of g over i + 1 … t; 0 for t
    < i.

    Each sum is computed on its own: differences of cumulative sums would lose the digits that long
    decays have in common.
    """
    tokens = g.shape[-1]
    return g[..., None].expand(*g.shape, tokens).tril(-1).cumsum(-2).exp().tril()


def selective_scan(
    dt: Tensor, x: Tensor, b: Tensor, c: Tensor, a: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute s ← e^(a dt) s + x b, y = s · c in each channel: dt and x `(B, T, i)`, b and c `(B,
    T, N)`, a `(i, N)`, s `(B, i, N)`.

    Every channel and every number of a state has its own decay, so a chunk is no matrix product;
    its tokens are read one by one.
    """
    state = x.new_zeros(x.shape[0], *a.shape) if state is None else state
    outputs = []
    for dts, xs, bs, cs in zip(
        *(z.transpose(0, 1).split(SCAN_CHUNK) for z in (dt, x, b, c)), strict=True
    ):
        decays, inputs = (dts[..., None] * a).exp(), xs[..., None] * bs[:, :, None]  # (t, B, i, N)
        states = []
        for decay, new in zip(decays, inputs, strict=True):
            state = torch.addcmul(new, decay, state)
            states.append(state)
        outputs.append((torch.stack(states) @ cs[..., None])[..., 0])
    return torch.cat(outputs).transpose(0, 1), state
