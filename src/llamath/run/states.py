"""Mixers that carry a state of fixed size: the gated delta rule, Mamba-2, the short convolution.

They go from token to token, as their equations do; a pass over many tokens takes as many steps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from .. import mixers
from .attention import Mixer
from .cache import Memory, State
from .module import Module, runs
from .parts import ACTIVATIONS, Linear, Norm
from .step import Step


class StateMixer(Mixer):
    """Base of the mixers that remember a state."""

    def memory(self, room: int) -> Memory:  # noqa: ARG002
        """A state, whatever the room."""
        return State()

    def recall(self, step: Step, i: int) -> State:
        """What layer i remembers."""
        memory = step.cache.memories[i]
        assert isinstance(memory, State)
        return memory


@runs(mixers.Convolution)
class Convolution(Module):
    """Each channel's last taps, weighed; padding counts as nothing."""

    weight: Parameter
    bias: Parameter | None

    def forward(self, x: Tensor, memory: State, step: Step) -> Tensor:
        taps = self.weight.shape[1]
        x = x if step.real is None else x * step.real
        before = x.new_zeros(x.shape[0], taps - 1, x.shape[2]) if memory.taps is None else memory.taps[:, 1:]
        x = torch.cat((before, x), 1)
        memory.taps = x[:, x.shape[1] - taps :].clone()
        return F.conv1d(x.mT, self.weight[:, None], self.bias, groups=x.shape[2]).mT


@runs(mixers.GatedDeltaNet)
class GatedDeltaNet(StateMixer):
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

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        s, memory = self.spec, self.recall(step, i)
        read = torch.cat((self.query(x), self.key(x), self.value(x)), -1)
        read = ACTIVATIONS[s.activation](self.conv(read, memory, step)).float()
        keys = s.key_heads * s.key_dim
        q, k, v = read.split((keys, keys, read.shape[-1] - 2 * keys), -1)
        q, k = self._unit(q) * s.key_dim**-0.5, self._unit(k)  # (B, T, Hv, hk)
        v = v.unflatten(-1, (-1, s.value_dim))  # (B, T, Hv, hv)
        kept = torch.exp(-self.a_log.float().exp() * F.softplus(self.alpha(x).float() + self.dt_bias.float()))
        y = self._through((q, k, v), kept, self.beta(x).float().sigmoid(), memory)
        z = self.z(x).unflatten(-1, (-1, s.value_dim))
        return self.out((self.norm(y.to(x.dtype)) * F.silu(z.float())).to(x.dtype).flatten(2))

    def _unit(self, x: Tensor) -> Tensor:
        """Each head of length 1, as often as it serves a value head."""
        x = x.unflatten(-1, (-1, self.spec.key_dim))
        x = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.spec.l2_eps)
        return x.repeat_interleave(self.spec.value_heads // self.spec.key_heads, 2)

    def _through(self, qkv: tuple[Tensor, Tensor, Tensor], kept: Tensor, size: Tensor, memory: State) -> Tensor:
        """The state from token to token, and what is read from it, `(B, T, Hv, hv)`."""
        q, k, v = qkv
        state = k.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if memory.state is None else memory.state
        given = []
        for t in range(q.shape[1]):
            state = state * kept[:, t, :, None, None]
            change = size[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
            state = state + k[:, t, :, :, None] * change[:, :, None]
            given.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
        memory.state = state
        return torch.stack(given, 1)


@runs(mixers.Mamba2)
class Mamba2(StateMixer):
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

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        s, memory = self.spec, self.recall(step, i)
        read = torch.cat((self.x(x), self.b(x), self.c(x)), -1)
        read = ACTIVATIONS[s.activation](self.conv(read, memory, step)).float()
        states = s.state_groups * s.state
        v, b, c = read.split((read.shape[-1] - 2 * states, states, states), -1)
        v = v.unflatten(-1, (-1, s.head_dim))  # (B, T, Hm, m)
        size = F.softplus(self.dt(x).float() + self.dt_bias.float()).clamp(min=s.dt_least)
        size = size if step.real is None else size * step.real
        y = self._through(v, self._served(b), self._served(c), size, memory) + self.skip.float()[:, None] * v
        return self.out(self.norm((y.flatten(2) * F.silu(self.z(x).float())).to(x.dtype)))

    def _served(self, x: Tensor) -> Tensor:
        """Each group's numbers, as often as it serves a head, `(B, T, Hm, N)`."""
        return x.unflatten(-1, (-1, self.spec.state)).repeat_interleave(self.spec.heads // self.spec.state_groups, 2)

    def _through(self, v: Tensor, b: Tensor, c: Tensor, size: Tensor, memory: State) -> Tensor:
        """The state from token to token, and what is read from it, `(B, T, Hm, m)`."""
        kept, fed = torch.exp(-self.a_log.float().exp() * size), v * size[..., None]
        state = v.new_zeros(*v.shape[:1], *v.shape[2:], b.shape[-1]) if memory.state is None else memory.state
        given = []
        for t in range(v.shape[1]):
            state = state * kept[:, t, :, None, None] + fed[:, t, :, :, None] * b[:, t, :, None]
            given.append(torch.einsum("bhmn,bhn->bhm", state, c[:, t]))
        memory.state = state
        return torch.stack(given, 1)


@runs(mixers.ShortConv)
class ShortConv(StateMixer):
    """out(c · conv(b · x)) (LFM2)."""

    b: Linear
    c: Linear
    x: Linear
    conv: Convolution
    out: Linear

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        return self.out(self.c(x) * self.conv(self.b(x) * self.x(x), self.recall(step, i), step))
