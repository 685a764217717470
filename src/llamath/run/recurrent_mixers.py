"""Mixers with a recurrent state of fixed size: gated delta rule, Mamba-2, short convolution.

`linear_recurrence` computes S ← eᵍ S + k ⊗ u, y = Sᵀ q in each head, one chunk of tokens at a time. Inside a chunk it is three matrix
products, like attention without a softmax, with the product of eᵍ between two tokens as a factor; only the state passes from chunk to chunk
(Dao and Gu 2024, arXiv:2405.21060, section 6). The delta rule writes u = β (v − (eᵍ S)ᵀ k), which depends on what earlier tokens have
written: a triangular system in each chunk (Yang et al. 2024, arXiv:2406.06484, section 3, and arXiv:2412.06464 with g). A chunk of one
token is the recurrence itself.

Letters in shapes: B rows, G groups of r heads that share q and k, T tokens, n the size of q and k, m that of u and y.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..core import mixers
from .attention import Mixer
from .basic_layers import ACTIVATIONS, Linear, Norm
from .forward_context import ForwardContext
from .kv_cache import LayerCache, RecurrentState
from .module import Module, module_for

CHUNK = 32
"""Tokens in a chunk: with more, most of the work is between tokens; with fewer, on the state."""


class RecurrenceInputs(NamedTuple):
    """Inputs of `linear_recurrence`: q and k `(B, G, 1, T, n)`, v `(B, G, r, T, m)`, log decay g and β `(B, G, r, T)`."""

    q: Tensor
    k: Tensor
    v: Tensor  # u itself without beta
    g: Tensor
    beta: Tensor | None = None

    @classmethod
    def from_heads(cls, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None = None) -> RecurrenceInputs:
        """Arrange q and k `(B, T, G, n)`, v `(B, T, G · r, m)`, g and beta `(B, T, G · r)`."""
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        groups = (q.shape[1], -1)
        per_head = (x.mT.unflatten(1, groups) for x in (g, beta) if x is not None)
        return cls(q[:, :, None], k[:, :, None], v.unflatten(1, groups), *per_head)

    def chunks(self, size: int) -> list[RecurrenceInputs]:
        """Split the tokens into chunks; the last one may be shorter."""
        parts = zip(*(x.split(size, 3) for x in self if x is not None), strict=True)
        return [RecurrenceInputs(*part) for part in parts]


def linear_recurrence(inputs: RecurrenceInputs, state: Tensor | None, chunk_size: int = CHUNK) -> tuple[Tensor, Tensor]:
    """Return each token's output, `(B, T, G · r, m)`, and the state after the last token, `(B, G · r, n, m)`."""
    shape = *inputs.v.shape[:3], inputs.k.shape[-1], inputs.v.shape[-1]
    carried = inputs.v.new_zeros(shape) if state is None else state.view(shape)
    outputs = []
    for chunk in inputs.chunks(chunk_size):
        y, carried = _chunk(chunk, carried)
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
        u = torch.linalg.solve_triangular(beta * (x.k @ x.k.mT) * decay, residual, upper=False, unitriangular=True)
    y = state_decay * (x.q @ state) + ((x.q @ x.k.mT) * decay) @ u
    return y, state_decay[..., -1:, :] * state + x.k.mT @ (decay[..., -1, :, None] * u)


def _decay_matrix(g: Tensor) -> Tensor:
    """At (t, i) the factor on token i's write at token t: e to the sum of g over i + 1 … t; 0 for t < i.

    Each sum is computed on its own: differences of cumulative sums would lose the digits that long decays have in common.
    """
    tokens = g.shape[-1]
    return g[..., None].expand(*g.shape, tokens).tril(-1).cumsum(-2).exp().tril()


class RecurrentMixer(Mixer):
    """Base of the mixers with a recurrent state."""

    def new_cache(self, capacity: int) -> LayerCache:  # noqa: ARG002
        """A state, whose size does not depend on the capacity."""
        return RecurrentState()

    def get_state(self, ctx: ForwardContext, i: int) -> RecurrentState:
        """The state of layer i."""
        state = ctx.cache.layers[i]
        assert isinstance(state, RecurrentState)
        return state


@module_for(mixers.Convolution)
class Convolution(Module):
    """Causal depthwise convolution over the last inputs of each channel; padding tokens count as zero."""

    weight: Parameter
    bias: Parameter | None

    def forward(self, x: Tensor, state: RecurrentState, ctx: ForwardContext) -> Tensor:
        taps = self.weight.shape[1]
        x = x if ctx.token_mask is None else x * ctx.token_mask
        before = x.new_zeros(x.shape[0], taps - 1, x.shape[2]) if state.conv_state is None else state.conv_state[:, 1:]
        x = torch.cat((before, x), 1)
        state.conv_state = x[:, x.shape[1] - taps :].clone()
        return F.conv1d(x.mT, self.weight[:, None], self.bias, groups=x.shape[2]).mT


@module_for(mixers.GatedDeltaNet)
class GatedDeltaNet(RecurrentMixer):
    """S ← g S + k ⊗ β (v − (g S)ᵀ k); y = Sᵀ q, in each value head (Yang et al. 2024, arXiv:2412.06464)."""

    spec: mixers.GatedDeltaNet
    query: Linear
    key: Linear
    value: Linear
    z: Linear
    beta: Linear
    alpha: Linear
    conv: Convolution
    dt_bias: Parameter
    a_log: Parameter
    norm: Norm
    out: Linear

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        s, state = self.spec, self.get_state(ctx, i)
        mixed = torch.cat((self.query(x), self.key(x), self.value(x)), -1)
        mixed = ACTIVATIONS[s.activation](self.conv(mixed, state, ctx)).float()
        keys = s.key_heads * s.key_dim
        q, k, v = mixed.split((keys, keys, mixed.shape[-1] - 2 * keys), -1)
        q, k = self._l2_normalize(q) * s.key_dim**-0.5, self._l2_normalize(k)  # (B, T, Hk, hk)
        v = v.unflatten(-1, (-1, s.value_dim))  # (B, T, Hv, hv)
        g = -self.a_log.float().exp() * F.softplus(self.alpha(x).float() + self.dt_bias.float())
        inputs = RecurrenceInputs.from_heads(q, k, v, g, self.beta(x).float().sigmoid())
        y, state.recurrent_state = linear_recurrence(inputs, state.recurrent_state)
        z = self.z(x).unflatten(-1, (-1, s.value_dim))
        return self.out((self.norm(y.to(x.dtype)) * F.silu(z.float())).to(x.dtype).flatten(2))

    def _l2_normalize(self, x: Tensor) -> Tensor:
        """Scale each head to length 1."""
        x = x.unflatten(-1, (-1, self.spec.key_dim))
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.spec.l2_eps)


@module_for(mixers.Mamba2)
class Mamba2(RecurrentMixer):
    """S ← exp(−exp(a_log) Δt) S + Δt x ⊗ b; y = S c + skip · x, in each head (Dao and Gu 2024, arXiv:2405.21060)."""

    spec: mixers.Mamba2
    z: Linear
    x: Linear
    b: Linear
    c: Linear
    dt: Linear
    conv: Convolution
    dt_bias: Parameter
    a_log: Parameter
    skip: Parameter
    norm: Norm
    out: Linear

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        s, state = self.spec, self.get_state(ctx, i)
        mixed = torch.cat((self.x(x), self.b(x), self.c(x)), -1)
        mixed = ACTIVATIONS[s.activation](self.conv(mixed, state, ctx)).float()
        states = s.state_groups * s.state_size
        v, b, c = mixed.split((mixed.shape[-1] - 2 * states, states, states), -1)
        v = v.unflatten(-1, (-1, s.head_dim))  # (B, T, Hm, m)
        dt = F.softplus(self.dt(x).float() + self.dt_bias.float()).clamp(min=s.dt_min)
        dt = dt if ctx.token_mask is None else dt * ctx.token_mask
        b, c = (x.unflatten(-1, (-1, s.state_size)) for x in (b, c))  # (B, T, G, N)
        u, g = v * dt[..., None], -self.a_log.float().exp() * dt
        before = None if state.recurrent_state is None else state.recurrent_state.mT  # stored as (m, n), as in transformers
        y, after = linear_recurrence(RecurrenceInputs.from_heads(c, b, u, g), before)
        state.recurrent_state, y = after.mT, y + self.skip.float()[:, None] * v
        return self.out(self.norm((y.flatten(2) * F.silu(self.z(x).float())).to(x.dtype)))


@module_for(mixers.ShortConv)
class ShortConv(RecurrentMixer):
    """out(c · conv(b · x)) (LFM2)."""

    b: Linear
    c: Linear
    x: Linear
    conv: Convolution
    out: Linear

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        return self.out(self.c(x) * self.conv(self.b(x) * self.x(x), self.get_state(ctx, i), ctx))
