"""Linear layers for few tokens on a CPU: weights in their original layout, packed for oneDNN or MKL, or quantized to int8."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..torch_machine import ACTIVATIONS

_FUSED_ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish"), ("swish", "")),
    **dict.fromkeys(("gelu", "gelu_python"), ("gelu", "none")),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), ("gelu", "tanh")),
    "relu": ("relu", ""),
}
"""Activations that oneDNN fuses into a matrix product: its names and algorithms."""


class CpuLinear:
    """Base: a linear layer, followed by an elementwise operation in a separate pass unless a subclass fuses it."""

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        """act(W x)."""
        return ACTIVATIONS[activation](self(x))

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        """W x · y, elementwise."""
        return self(x).mul_(y)

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        """W x + y."""
        return self(x).add_(y)


class PlainLinear(CpuLinear):
    """A weight in its original layout; oneDNN fuses the elementwise operation."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        ops = torch.ops.mkldnn
        self._unary, self._binary = ops._linear_pointwise.default, ops._linear_pointwise.binary
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self._unary(x, self.weight, self.bias, "none", [], "")
        return y

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        if activation not in _FUSED_ACTIVATIONS:
            return super().apply_act(x, activation)
        name, algorithm = _FUSED_ACTIVATIONS[activation]
        y: Tensor = self._unary(x, self.weight, self.bias, name, [], algorithm)
        return y

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self._binary(x, y, self.weight, self.bias, "mul")
        return z

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self._binary(x, y, self.weight, self.bias, "add")
        return z


class MkldnnPackedLinear(PlainLinear):
    """A weight packed for oneDNN's kernels, which are slower for one row than for four."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 1 if weight.dtype == torch.bfloat16 else 8)
        super().__init__(packed, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(_pad_rows_to_4(x))[: len(x)]

    def apply_act(self, x: Tensor, activation: str) -> Tensor:
        return super().apply_act(_pad_rows_to_4(x), activation)[: len(x)]

    def apply_mul(self, x: Tensor, y: Tensor) -> Tensor:
        return super().apply_mul(_pad_rows_to_4(x), _pad_rows_to_4(y))[: len(x)]

    def apply_add(self, x: Tensor, y: Tensor) -> Tensor:
        return super().apply_add(_pad_rows_to_4(x), _pad_rows_to_4(y))[: len(x)]


def _pad_rows_to_4(x: Tensor) -> Tensor:
    """Repeat the rows until there are at least four."""
    rows = x.numel() // x.shape[-1]
    return x if rows > 3 else torch.cat([x] * -(-4 // rows))


PANEL_ROWS = 32
"""Rows of a panel: with 32, and not with 64, MKL's batched product reaches nearly the memory bandwidth."""


class PanelPackedLinear(CpuLinear):
    """A weight split into panels of `PANEL_ROWS` rows, each stored column by column, which is fastest for one row of x."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.panels, self.bias = weight.new_empty(len(weight) // PANEL_ROWS, weight.shape[1], PANEL_ROWS), bias
        for panel, rows in zip(self.panels, weight.split(PANEL_ROWS), strict=True):
            panel.copy_(rows.t())

    def __call__(self, x: Tensor) -> Tensor:
        y = (x.flatten(0, -2) @ self.panels).transpose(0, 1).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y.add_(self.bias)


class ConcatLinear(CpuLinear):
    """Several linear layers of the same input, their outputs reordered and concatenated; `reorder(y, i)` is called for layer i."""

    def __init__(self, parts: list[CpuLinear], reorder: Callable[[Tensor, int], Tensor]) -> None:
        self.parts, self.reorder = parts, reorder

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([self.reorder(part(x), i) for i, part in enumerate(self.parts)], -1)


class SlicedLinear(CpuLinear):
    """A linear layer of many rows as several of fewer rows, so that packing never needs a second copy of the whole weight."""

    def __init__(self, slices: list[CpuLinear], after_slice: Callable[[], object] = lambda: None) -> None:
        self.slices, self.after_slice = slices, after_slice

    def __call__(self, x: Tensor) -> Tensor:
        outputs = []
        for part in self.slices:
            outputs.append(part(x))
            self.after_slice()
        return torch.cat(outputs, -1)


_MAX_LEVEL = 32_512
"""Largest 16-bit level of x: two bytes around `ZERO_POINT` hold −32,512 to 32,512."""
_ZERO_POINT = 128 * 256 + 128


class Int8Linear(CpuLinear):
    """An int8 weight with one scale per row, max |w| / 127; x is quantized to 16 bits per row, multiplied as a high and a low byte.

    The error is at most half a scale in each weight, and at most max |x| / 65,000 in x, which is less than that of bfloat16.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        values, self.scale = quantize_int8(weight)
        self.zeros = torch.zeros(weight.shape[0], dtype=torch.int32)
        self.weight = torch.ops.onednn.qlinear_prepack(values, [16, weight.shape[1]])
        self.bias, self._run = bias, torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2).float()
        step = flat.abs().amax(-1, keepdim=True).clamp_(min=1e-30).div_(_MAX_LEVEL)
        levels = (flat / step).round_().to(torch.int32).add_(_ZERO_POINT)
        both = torch.cat((levels >> 8, levels & 255)).to(torch.uint8)
        y = self._run(_pad_rows_to_4(both), 1.0, 128, self.weight, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], "")
        high, low = y[: len(both)].split(len(flat))
        y = torch.add(low, high, alpha=256.0).mul_(step)
        y = y if self.bias is None else y.add_(self.bias)
        return y.to(x.dtype).unflatten(0, x.shape[:-1])


_QUANTIZE_ROWS = 64
"""Rows quantized at once, so that their float32 copy stays in the processor's cache."""


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return integers from −127 to 127 and the scale of each row."""
    values, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    for rows, row_values, row_scales in zip(*(x.split(_QUANTIZE_ROWS) for x in (weight, values, scales)), strict=True):
        floats = rows.float()
        row_scales.copy_(floats.abs().amax(1)).clamp_(min=1e-30).div_(127)
        row_values.copy_((floats / row_scales[:, None]).round_())
    return values, scales
