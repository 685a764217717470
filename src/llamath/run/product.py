"""y = W x for few tokens at a time: a weight as oneDNN reads it best, or as whole numbers of eight bits with a scale for each row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .parts import ACTIVATIONS

FUSED = {
    **dict.fromkeys(("silu", "swish"), ("swish", "")),
    **dict.fromkeys(("gelu", "gelu_python"), ("gelu", "none")),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), ("gelu", "tanh")),
    "relu": ("relu", ""),
}
"""Activations that a product can end with, by oneDNN's names."""


class Product:
    """Base: what is done to a product is done afterwards."""

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def activated(self, x: Tensor, activation: str) -> Tensor:
        """act(W x)."""
        return ACTIVATIONS[activation](self(x))

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        """W x · y, number by number."""
        return self(x).mul_(y)

    def plus(self, x: Tensor, y: Tensor) -> Tensor:
        """W x + y."""
        return self(x).add_(y)


class Dense(Product):
    """A weight in float32 where it lies, in bfloat16 in the order of oneDNN's kernels; what is done to the product is done within."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        ops = torch.ops.mkldnn
        self._plain, self._joined = ops._linear_pointwise.default, ops._linear_pointwise.binary
        self.weight = ops._reorder_linear_weight(weight, 1) if weight.dtype == torch.bfloat16 else weight.contiguous()
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self._plain(x, self.weight, self.bias, "none", [], "")
        return y

    def activated(self, x: Tensor, activation: str) -> Tensor:
        if activation not in FUSED:
            return super().activated(x, activation)
        name, how = FUSED[activation]
        y: Tensor = self._plain(x, self.weight, self.bias, name, [], how)
        return y

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self._joined(x, y, self.weight, self.bias, "mul")
        return z

    def plus(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self._joined(x, y, self.weight, self.bias, "add")
        return z


class Slices(Product):
    """A tall weight as several, one below the other, so that it is never there twice as a whole."""

    def __init__(self, parts: list[Product]) -> None:
        self.parts = parts

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)


class Whole(Product):
    """A weight in eight bits, q · s in each row with s = max |w| / 127; x goes in as two numbers of eight bits, the fine beside the coarse.

    An error of at most s / 2 in each weight; in x at most its largest number / 65,000, less than bfloat16 has.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        numbers, self.scale = whole(weight)
        self.zeros = torch.zeros(weight.shape[0], dtype=torch.int32)
        self.weight = torch.ops.onednn.qlinear_prepack(numbers, [16, weight.shape[1]])
        self.bias, self._run = bias, torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2).float()
        step = flat.abs().amax(-1, keepdim=True).clamp_(min=1e-30).div_(HALF)
        parts = (flat / step).round_().to(torch.int32).add_(MIDDLE)
        both = torch.cat((parts >> 8, parts & 255)).to(torch.uint8)
        y = self._run(both, 1.0, 128, self.weight, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], "")
        coarse, fine = y.split(len(flat))
        y = torch.add(fine, coarse, alpha=256.0).mul_(step)
        y = y if self.bias is None else y.add_(self.bias)
        return y.to(x.dtype).unflatten(0, x.shape[:-1])


HALF = 32_512
"""So many steps from zero to the largest number: what two bytes around a middle have room for."""
MIDDLE = 128 * 256 + 128


def whole(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of whole numbers from −127 to 127, and what each row's are multiplied by."""
    rows = weight.float()
    scale = rows.abs().amax(1).clamp_(min=1e-30).div_(127)
    return (rows / scale[:, None]).round_().to(torch.int8), scale


Kind = Callable[[Tensor, Tensor | None], Product]
