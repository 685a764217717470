"""y = W x for few tokens at a time: a weight as oneDNN reads it best, or as whole numbers of eight bits with a scale for each row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..basic_layers import ACTIVATIONS

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


class Lying(Product):
    """A weight where it lies; what is done to the product is done within."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        ops = torch.ops.mkldnn
        self._plain, self._joined = ops._linear_pointwise.default, ops._linear_pointwise.binary
        self.weight, self.bias = weight, bias

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


class Ordered(Lying):
    """A weight in the order of oneDNN's kernels, which are slower for one row than for four."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        ordered = torch.ops.mkldnn._reorder_linear_weight(weight, 1 if weight.dtype == torch.bfloat16 else 8)
        super().__init__(ordered, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(four(x))[: len(x)]

    def activated(self, x: Tensor, activation: str) -> Tensor:
        return super().activated(four(x), activation)[: len(x)]

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        return super().times(four(x), four(y))[: len(x)]

    def plus(self, x: Tensor, y: Tensor) -> Tensor:
        return super().plus(four(x), four(y))[: len(x)]


def four(x: Tensor) -> Tensor:
    """At least so many rows, the same ones again where there are fewer."""
    rows = x.numel() // x.shape[-1]
    return x if rows > 3 else torch.cat([x] * -(-4 // rows))


class Panels(Product):
    """A weight in panels of some rows, each with its columns one after the other, which one row of x meets faster."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.panels, self.bias = weight.new_empty(len(weight) // PANEL, weight.shape[1], PANEL), bias
        for panel, rows in zip(self.panels, weight.split(PANEL), strict=True):
            panel.copy_(rows.t())

    def __call__(self, x: Tensor) -> Tensor:
        y = (x.flatten(0, -2) @ self.panels).transpose(0, 1).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y.add_(self.bias)


PANEL = 32
"""The rows of a panel: with so many, and not with 64, MKL's product of a batch reads nearly what the memory gives."""


class Beside(Product):
    """What several weights make of the same, one after the other, each put in another order."""

    def __init__(self, parts: list[Product], ordered: Callable[[Tensor, int], Tensor]) -> None:
        self.parts, self.ordered = parts, ordered

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([self.ordered(part(x), i) for i, part in enumerate(self.parts)], -1)


class Slices(Product):
    """A tall weight as several, one below the other, so that it is never there twice as a whole."""

    def __init__(self, parts: list[Product], between: Callable[[], object] = lambda: None) -> None:
        self.parts, self.between = parts, between

    def __call__(self, x: Tensor) -> Tensor:
        found = []
        for part in self.parts:
            found.append(part(x))
            self.between()
        return torch.cat(found, -1)


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
        y = self._run(four(both), 1.0, 128, self.weight, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], "")
        coarse, fine = y[: len(both)].split(len(flat))
        y = torch.add(fine, coarse, alpha=256.0).mul_(step)
        y = y if self.bias is None else y.add_(self.bias)
        return y.to(x.dtype).unflatten(0, x.shape[:-1])


HALF = 32_512
"""So many steps from zero to the largest number: what two bytes around a middle have room for."""
MIDDLE = 128 * 256 + 128


def whole(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of whole numbers from −127 to 127, and what each row's are multiplied by; few rows at a time, while they are at hand."""
    numbers, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    for some, number, scale in zip(*(x.split(NEAR) for x in (weight, numbers, scales)), strict=True):
        rows = some.float()
        scale.copy_(rows.abs().amax(1)).clamp_(min=1e-30).div_(127)
        number.copy_((rows / scale[:, None]).round_())
    return numbers, scales


NEAR = 64
"""So many rows are made whole numbers at once."""
