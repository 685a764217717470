"""y = W x for few tokens at a time: a weight as oneDNN reads it best, or as whole numbers of eight bits with a scale for each row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..basic_layers import ACTIVATIONS

FUSED_ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish"), ("swish", "")),
    **dict.fromkeys(("gelu", "gelu_python"), ("gelu", "none")),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), ("gelu", "tanh")),
    "relu": ("relu", ""),
}
"""Activations that a product can end with, by oneDNN's names."""


class CpuLinear:
    """Base: what is done to a product is done afterwards."""

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        """act(W x)."""
        return ACTIVATIONS[activation](self(x))

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        """W x · y, number by number."""
        return self(x).mul_(y)

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        """W x + y."""
        return self(x).add_(y)


class PlainLinear(CpuLinear):
    """A weight where it lies; what is done to the product is done within."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        ops = torch.ops.mkldnn
        self._unary, self._binary = ops._linear_pointwise.default, ops._linear_pointwise.binary
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self._unary(x, self.weight, self.bias, "none", [], "")
        return y

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        if activation not in FUSED_ACTIVATIONS:
            return super().apply_act(x, activation)
        name, how = FUSED_ACTIVATIONS[activation]
        y: Tensor = self._unary(x, self.weight, self.bias, name, [], how)
        return y

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self._binary(x, y, self.weight, self.bias, "mul")
        return z

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self._binary(x, y, self.weight, self.bias, "add")
        return z


class MkldnnPackedLinear(PlainLinear):
    """A weight in the order of oneDNN's kernels, which are slower for one row than for four."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        ordered = torch.ops.mkldnn._reorder_linear_weight(weight, 1 if weight.dtype == torch.bfloat16 else 8)
        super().__init__(ordered, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(pad_rows_to_4(x))[: len(x)]

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        return super().apply_act(pad_rows_to_4(x), activation)[: len(x)]

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        return super().apply_mul(pad_rows_to_4(x), pad_rows_to_4(y))[: len(x)]

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        return super().apply_add(pad_rows_to_4(x), pad_rows_to_4(y))[: len(x)]


def pad_rows_to_4(x: Tensor) -> Tensor:
    """At least so many rows, the same ones again where there are fewer."""
    rows = x.numel() // x.shape[-1]
    return x if rows > 3 else torch.cat([x] * -(-4 // rows))


class PanelPackedLinear(CpuLinear):
    """A weight in panels of some rows, each with its columns one after the other, which one row of x meets faster."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.panels, self.bias = weight.new_empty(len(weight) // PANEL_ROWS, weight.shape[1], PANEL_ROWS), bias
        for panel, rows in zip(self.panels, weight.split(PANEL_ROWS), strict=True):
            panel.copy_(rows.t())

    def __call__(self, x: Tensor) -> Tensor:
        y = (x.flatten(0, -2) @ self.panels).transpose(0, 1).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y.add_(self.bias)


PANEL_ROWS = 32
"""The rows of a panel: with so many, and not with 64, MKL's product of a batch reads nearly what the memory gives."""


class ConcatLinear(CpuLinear):
    """What several weights make of the same, one after the other, each put in another order."""

    def __init__(self, parts: list[CpuLinear], ordered: Callable[[Tensor, int], Tensor]) -> None:
        self.parts, self.reorder = parts, ordered

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([self.reorder(part(x), i) for i, part in enumerate(self.parts)], -1)


class SlicedLinear(CpuLinear):
    """A tall weight as several, one below the other, so that it is never there twice as a whole."""

    def __init__(self, parts: list[CpuLinear], between: Callable[[], object] = lambda: None) -> None:
        self.slices, self.after_slice = parts, between

    def __call__(self, x: Tensor) -> Tensor:
        found = []
        for part in self.slices:
            found.append(part(x))
            self.after_slice()
        return torch.cat(found, -1)


class Int8Linear(CpuLinear):
    """A weight in eight bits, q · s in each row with s = max |w| / 127; x goes in as two numbers of eight bits, the fine beside the coarse.

    An error of at most s / 2 in each weight; in x at most its largest number / 65,000, less than bfloat16 has.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        numbers, self.scale = quantize_int8(weight)
        self.zeros = torch.zeros(weight.shape[0], dtype=torch.int32)
        self.weight = torch.ops.onednn.qlinear_prepack(numbers, [16, weight.shape[1]])
        self.bias, self._run = bias, torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2).float()
        step = flat.abs().amax(-1, keepdim=True).clamp_(min=1e-30).div_(MAX_LEVEL)
        parts = (flat / step).round_().to(torch.int32).add_(ZERO_POINT)
        both = torch.cat((parts >> 8, parts & 255)).to(torch.uint8)
        y = self._run(pad_rows_to_4(both), 1.0, 128, self.weight, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], "")
        coarse, fine = y[: len(both)].split(len(flat))
        y = torch.add(fine, coarse, alpha=256.0).mul_(step)
        y = y if self.bias is None else y.add_(self.bias)
        return y.to(x.dtype).unflatten(0, x.shape[:-1])


MAX_LEVEL = 32_512
"""So many steps from zero to the largest number: what two bytes around a middle have room for."""
ZERO_POINT = 128 * 256 + 128


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of whole numbers from −127 to 127, and what each row's are multiplied by; few rows at a time, while they are at hand."""
    numbers, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    for some, number, scale in zip(*(x.split(QUANTIZE_ROWS) for x in (weight, numbers, scales)), strict=True):
        rows = some.float()
        scale.copy_(rows.abs().amax(1)).clamp_(min=1e-30).div_(127)
        number.copy_((rows / scale[:, None]).round_())
    return numbers, scales


QUANTIZE_ROWS = 64
"""So many rows are made whole numbers at once."""
