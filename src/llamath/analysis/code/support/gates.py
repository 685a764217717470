"""Gated activations of written files that are more than one expression."""

from __future__ import annotations

import torch
from torch import Tensor


def clamped_gated(gate: Tensor, up: Tensor, limit: float, alpha: float) -> Tensor:
    """(up + 1) · g · sigmoid(alpha · g), with g = gate up to the limit, and up within ± limit."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)
