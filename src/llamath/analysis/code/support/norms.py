"""Norms of written files whose weights are stored minus 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm


class RMSNorm(nn.Module):
    """x / rms(x) · (1 + w): files store w."""

    def __init__(self, d: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(d)), eps

    def forward(self, x: Tensor) -> Tensor:
        weight = 1 + self.weight.float()
        return rms_norm(x.float(), x.shape[-1:], weight, self.eps).type_as(x)
