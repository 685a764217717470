"""Modules that process each token alone: linear layers, embeddings, norms, feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..core import blocks, mixers
from .module import Module, local_tensor, module_for


@module_for(blocks.Linear)
class Linear(Module):
    """y = W x + b."""

    weight: Parameter
    bias: Parameter | None

    def forward(self, x: Tensor) -> Tensor:
        if self.fused is not None and self.fused.usable():
            return self.fused(x)
        return F.linear(x, local_tensor(self.weight), None if self.bias is None else local_tensor(self.bias))


@module_for(blocks.ProjectedLinear)
class ProjectedLinear(Linear):
    """W (P x) + b."""

    projection: Linear

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.projection(x))


@module_for(blocks.Embedding)
class Embedding(Module):
    """Rows of a table by token id or position."""

    spec: blocks.Embedding
    weight: Parameter

    def forward(self, ids: Tensor) -> Tensor:
        return self.fused(ids) if self.fused is not None and self.fused.usable() else self.lookup(ids)

    def lookup(self, ids: Tensor) -> Tensor:
        """Return the scaled rows of these ids."""
        rows = F.embedding(ids + self.spec.offset if self.spec.offset else ids, local_tensor(self.weight))
        return rows if self.spec.scale == 1.0 else rows * self.spec.scale


@module_for(blocks.ProjectedEmbedding)
class ProjectedEmbedding(Embedding):
    """Rows of a narrower table, projected to the hidden size."""

    projection: Linear

    def forward(self, ids: Tensor) -> Tensor:
        return self.projection(super().forward(ids))


class Norm(Module):
    """Base of the normalizations; torch computes them in float32 for every dtype."""

    spec: blocks.Norm
    weight: Parameter | None
    bias: Parameter | None


@module_for(blocks.RMSNorm)
class RMSNorm(Norm):
    """x / rms(x) · (offset + w) (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    spec: blocks.RMSNorm

    def forward(self, x: Tensor) -> Tensor:
        size, eps = x.shape[-1:], self.spec.eps
        if self.weight is None or not self.spec.offset:
            return F.rms_norm(x, size, self.weight, eps)
        return F.rms_norm(x.float(), size, self.spec.offset + self.weight.float(), eps).to(x.dtype)


@module_for(mixers.GroupedRMSNorm)
class GroupedRMSNorm(RMSNorm):
    """RMS normalization of each group of channels."""

    weight: Parameter

    def forward(self, x: Tensor) -> Tensor:
        return (F.rms_norm(x.unflatten(-1, self.weight.shape), self.weight.shape[-1:], eps=self.spec.eps) * self.weight).flatten(-2)


@module_for(blocks.LayerNorm)
class LayerNorm(Norm):
    """(x − mean) / std · w + b; a per-head weight has one row per head."""

    def forward(self, x: Tensor) -> Tensor:
        size, eps = x.shape[-1:], self.spec.eps
        if self.weight is not None and self.weight.dim() > 1:
            return F.layer_norm(x, size, eps=eps) * local_tensor(self.weight)
        return F.layer_norm(x, size, self.weight, self.bias, eps)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("silu", "swish"), F.silu),
    **dict.fromkeys(("gelu", "gelu_python"), F.gelu),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), partial(F.gelu, approximate="tanh")),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}
"""Activation functions by their names in configs."""


@module_for(blocks.MLP)
class MLP(Module):
    """down(act(gate x) · up x), or down(act(up x)) without a gate."""

    spec: blocks.MLP
    gate: Linear | None
    up: Linear
    down: Linear

    def forward(self, x: Tensor) -> Tensor:
        act = ACTIVATIONS[self.spec.activation]
        return self.down(act(self.up(x)) if self.gate is None else act(self.gate(x)) * self.up(x))


@module_for(blocks.ClampedMLP)
class ClampedMLP(MLP):
    """down((up x + 1) · g · sigmoid(alpha · g)), with g = gate x and up x clamped."""

    spec: blocks.ClampedMLP
    gate: Linear

    def forward(self, x: Tensor) -> Tensor:
        limit = self.spec.limit
        gate, up = self.gate(x).clamp(max=limit), self.up(x).clamp(-limit, limit)
        return self.down((up + 1) * gate * torch.sigmoid(self.spec.alpha * gate))
