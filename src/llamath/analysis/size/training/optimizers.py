"""The optimizer states of each weight in bytes, as torch and bitsandbytes allocate them.

States are in float32, or, for 16-bit weights without a master copy, in the dtype of the weights, as
in torch. AdamW: two moments (Loshchilov and Hutter 2017, arXiv:1711.05101). 8-bit AdamW: one byte
per moment and a float32 scale per block of 256 (Dettmers et al. 2021, arXiv:2110.02861); weights of
fewer than 4,096 elements stay in float32. Adafactor: row and column second moments of a matrix
(Shazeer and Stern 2018, arXiv:1804.04235). Muon: one momentum for the matrices of the layers, AdamW
for everything else (Jordan et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from ....core.expr import choose_if_less
from ...storage.parallel_layout import WeightShard

BLOCK_SIZE, MIN_8BIT_ELEMENTS, FP32 = 256, 4096, 4


class Optimizer(NamedTuple):
    """An optimizer: the bytes of its states for one copy of a weight, given the bytes per
    element of a state, with the rule in words.
    """

    name: str
    title: str
    states: Callable[[WeightShard, int], int]
    formula: str = ""
    per_element: int | None = None  # states of each element, where that is all


def _adamw(x: WeightShard, size: int) -> int:
    return 2 * size * prod(x.shape)


def _momentum(x: WeightShard, size: int) -> int:
    return size * prod(x.shape)


def _adamw8(x: WeightShard, size: int) -> int:  # noqa: ARG001
    n = prod(x.shape)
    eight = 2 * (n + FP32 * -(-n // BLOCK_SIZE))
    return choose_if_less(n, MIN_8BIT_ELEMENTS, _adamw(x, FP32), eight)


def _adafactor(x: WeightShard, size: int) -> int:
    return size * (sum(x.shape) if len(x.shape) > 1 else prod(x.shape))


def _muon(x: WeightShard, size: int) -> int:
    return _momentum(x, size) if _is_muon_matrix(x) else _adamw(x, size)


def _is_muon_matrix(x: WeightShard) -> bool:
    """Return whether Muon updates a weight: matrices inside the layers, except convolutions."""
    return (
        x.role == "matmul"
        and len(x.shape) == 2
        and x.group != "head"
        and not x.pattern.endswith("conv.weight")
    )


OPTIMIZERS = {
    x.name: x
    for x in (
        Optimizer("adamw", "AdamW", _adamw, per_element=2),
        Optimizer(
            "adamw8bit",
            "8-bit AdamW",
            _adamw8,
            "2·(n + 4·⌈n/256⌉) for each weight of n ≥ 4,096 numbers, else 8·n",
        ),
        Optimizer(
            "adafactor", "Adafactor", _adafactor, "{0}·(rows + columns) for each matrix, else {0}·n"
        ),
        Optimizer("muon", "Muon", _muon, "{0}·n for each matrix of the layers, else 2·{0}·n"),
        Optimizer("momentum", "SGD with momentum", _momentum, per_element=1),
        Optimizer("sgd", "SGD", lambda x, size: 0, per_element=0),  # noqa: ARG005
    )
}
