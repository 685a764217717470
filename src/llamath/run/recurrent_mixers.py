"""Mixers that carry a state of fixed size: the gated delta rule, Mamba-2, the short convolution."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..core import mixers
from .attention import Mixer
from .basic_layers import ACTIVATIONS, Linear, Norm
from .forward_context import ForwardContext
from .kv_cache import LayerCache, RecurrentState
from .linear_recurrence import RecurrenceInputs, linear_recurrence
from .module import Module, module_for


class RecurrentMixer(Mixer):
    """Base of the mixers that remember a state."""

    def new_cache(self, room: int) -> LayerCache:  # noqa: ARG002
        """A state, whatever the room."""
        return RecurrentState()

    def get_state(self, step: ForwardContext, i: int) -> RecurrentState:
        """What layer i remembers."""
        memory = step.cache.layers[i]
        assert isinstance(memory, RecurrentState)
        return memory


@module_for(mixers.Convolution)
class Convolution(Module):
    """Each channel's last taps, weighed; padding counts as nothing."""

    weight: Parameter
    bias: Parameter | None

    def forward(self, x: Tensor, memory: RecurrentState, step: ForwardContext) -> Tensor:
        taps = self.weight.shape[1]
        x = x if step.token_mask is None else x * step.token_mask
        before = x.new_zeros(x.shape[0], taps - 1, x.shape[2]) if memory.conv_state is None else memory.conv_state[:, 1:]
        x = torch.cat((before, x), 1)
        memory.conv_state = x[:, x.shape[1] - taps :].clone()
        return F.conv1d(x.mT, self.weight[:, None], self.bias, groups=x.shape[2]).mT


@module_for(mixers.GatedDeltaNet)
class GatedDeltaNet(RecurrentMixer):
    """S ← g S + k ⊗ s (v − (g S)ᵀ k); y = Sᵀ q, in each value head (Yang et al. 2024, arXiv:2412.06464)."""

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

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        s, memory = self.spec, self.get_state(step, i)
        read = torch.cat((self.query(x), self.key(x), self.value(x)), -1)
        read = ACTIVATIONS[s.activation](self.conv(read, memory, step)).float()
        keys = s.key_heads * s.key_dim
        q, k, v = read.split((keys, keys, read.shape[-1] - 2 * keys), -1)
        q, k = self._l2_normalize(q) * s.key_dim**-0.5, self._l2_normalize(k)  # (B, T, Hk, hk)
        v = v.unflatten(-1, (-1, s.value_dim))  # (B, T, Hv, hv)
        g = -self.a_log.float().exp() * F.softplus(self.alpha(x).float() + self.dt_bias.float())
        y, memory.recurrent_state = linear_recurrence(
            RecurrenceInputs.from_heads((q, k, v), g, self.beta(x).float().sigmoid()), memory.recurrent_state
        )
        z = self.z(x).unflatten(-1, (-1, s.value_dim))
        return self.out((self.norm(y.to(x.dtype)) * F.silu(z.float())).to(x.dtype).flatten(2))

    def _l2_normalize(self, x: Tensor) -> Tensor:
        """Each head of length 1."""
        x = x.unflatten(-1, (-1, self.spec.key_dim))
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.spec.l2_eps)


@module_for(mixers.Mamba2)
class Mamba2(RecurrentMixer):
    """S ← exp(−exp(a_log) s) S + s x ⊗ b; y = S c + skip · x, in each head (Dao and Gu 2024, arXiv:2405.21060)."""

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

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        s, memory = self.spec, self.get_state(step, i)
        read = torch.cat((self.x(x), self.b(x), self.c(x)), -1)
        read = ACTIVATIONS[s.activation](self.conv(read, memory, step)).float()
        states = s.state_groups * s.state_size
        v, b, c = read.split((read.shape[-1] - 2 * states, states, states), -1)
        v = v.unflatten(-1, (-1, s.head_dim))  # (B, T, Hm, m)
        size = F.softplus(self.dt(x).float() + self.dt_bias.float()).clamp(min=s.dt_min)
        size = size if step.token_mask is None else size * step.token_mask
        b, c = (x.unflatten(-1, (-1, s.state_size)) for x in (b, c))  # (B, T, G, N)
        u, g = v * size[..., None], -self.a_log.float().exp() * size
        y, state = linear_recurrence(
            RecurrenceInputs.from_heads((c, b, u), g), None if memory.recurrent_state is None else memory.recurrent_state.mT
        )
        memory.recurrent_state, y = state.mT, y + self.skip.float()[:, None] * v
        return self.out(self.norm((y.flatten(2) * F.silu(self.z(x).float())).to(x.dtype)))


@module_for(mixers.ShortConv)
class ShortConv(RecurrentMixer):
    """out(c · conv(b · x)) (LFM2)."""

    b: Linear
    c: Linear
    x: Linear
    conv: Convolution
    out: Linear

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        return self.out(self.c(x) * self.conv(self.b(x) * self.x(x), self.get_state(step, i), step))
