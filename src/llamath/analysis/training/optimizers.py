"""What optimisers keep of each weight, in bytes, as torch and bitsandbytes allocate it.

States are in float32, or, where weights in 16 bits have no master copy, in their type, as torch has it.
AdamW: two moments (Loshchilov and Hutter 2017, arXiv:1711.05101). Its 8-bit form: a byte for each, and a float32 for each block
of 256 (Dettmers et al. 2021, arXiv:2110.02861); weights of fewer than 4,096 numbers stay in float32. Adafactor: a row and a column of
second moments for a matrix (Shazeer and Stern 2018, arXiv:1804.04235). Muon: one momentum for the matrices of the layers, AdamW for all
else (Jordan et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from ..parallel_layout import WeightShard

BLOCK_SIZE, MIN_8BIT_ELEMENTS, FP32 = 256, 4096, 4


class Optimizer(NamedTuple):
    """One optimiser: what one copy of a weight costs, its states being numbers of so many bytes, and how that is written."""

    name: str
    title: str
    states: Callable[[WeightShard, int], int]
    formula: str


def _adamw(x: WeightShard, size: int) -> int:
    return 2 * size * prod(x.shape)


def _momentum(x: WeightShard, size: int) -> int:
    return size * prod(x.shape)


def _adamw8(x: WeightShard, size: int) -> int:  # noqa: ARG001
    n = prod(x.shape)
    return _adamw(x, FP32) if n < MIN_8BIT_ELEMENTS else 2 * (n + FP32 * -(-n // BLOCK_SIZE))


def _adafactor(x: WeightShard, size: int) -> int:
    return size * (sum(x.shape) if len(x.shape) > 1 else prod(x.shape))


def _muon(x: WeightShard, size: int) -> int:
    return _momentum(x, size) if is_muon_matrix(x) else _adamw(x, size)


def is_muon_matrix(x: WeightShard) -> bool:
    """Whether Muon moves it: a matrix inside the layers, and no convolution."""
    return x.role == "matmul" and len(x.shape) == 2 and x.group != "head" and not x.pattern.endswith("conv.weight")


OPTIMIZERS = {
    x.name: x
    for x in (
        Optimizer("adamw", "AdamW", _adamw, "N·({0} + {0})"),
        Optimizer("adamw8bit", "8-bit AdamW", _adamw8, "2·(n + 4·⌈n/256⌉) for each weight of n ≥ 4,096 numbers, else 8·n"),
        Optimizer("adafactor", "Adafactor", _adafactor, "{0}·(rows + columns) for each matrix, else {0}·n"),
        Optimizer("muon", "Muon", _muon, "{0}·n for each matrix of the layers, else 2·{0}·n"),
        Optimizer("momentum", "SGD with momentum", _momentum, "N·{0}"),
        Optimizer("sgd", "SGD", lambda x, size: 0, "nothing"),  # noqa: ARG005
    )
}
