"""The rules of `fit` that the page applies as well: when a model fits, which hardware is smaller,
and what a suggested change may give up.

Their arguments are numbers, or variables of the expressions that the page evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from ....core.expr import floor_div, minimum
from ....hardware import Device

MAX_HALVINGS = 4
"""What gives up more is not suggested."""
MAX_COMBINATIONS = 8
"""Combinations of changes that are suggested."""
RESCUE_BITS = (8, 4)
"""Bits of a weight that are combined with other GPUs, where the model does not fit."""
WIDE_KV_DTYPES = frozenset({"bf16", "fp16", "fp32"})
"""The dtypes of a KV cache in whose place smaller ones are suggested."""
_NODE = 8
T = TypeVar("T")


def left_of(memory: int, total: int) -> int:
    """Return the bytes that a GPU has left; a model fits where they are not negative."""
    return memory - total


def headroom_of(memory: int, total: int) -> int:
    """Return the bytes that a GPU has left of nine tenths of its memory, the share that vLLM and
    accelerate take; hardware is recommended where they are not negative, as what drivers, other
    programs and fragments take is an estimate.
    """
    return left_of(floor_div(9 * memory, 10), total)


def rounded_context(tokens: int) -> int:
    """Return a context as people give it: a multiple of 1,024, or of 256 below 4,096."""
    is_long = minimum(floor_div(tokens, 4096), 1)
    return is_long * (1024 * floor_div(tokens, 1024)) + (1 - is_long) * (
        256 * floor_div(tokens, 256)
    )


def by_size(
    among: Iterable[Device], counts: Iterable[int]
) -> Iterator[tuple[int, list[list[Device]]]]:
    """Yield numbers of devices, and for each the devices in groups of equally large ones: common
    devices first, of them the fewest, in nodes of up to eight, then the least memory as sold.
    """
    ordered, counts = sorted(among, key=lambda x: x.nominal), tuple(counts)
    for is_common in (True, False):
        alike = [x for x in ordered if bool(x.common) is is_common]
        for count in counts:
            in_node = [x for x in alike if x.node >= min(count, _NODE)]
            if in_node:
                yield count, [list(same) for _, same in groupby(in_node, key=lambda x: x.nominal)]


def recommended(
    groups: Iterable[Sequence[tuple[T, bool]]], speed: Callable[[T], float]
) -> T | None:
    """Return the fastest of the first group in which a model fits with headroom, else of the first
    in which it fits. The groups are those of `by_size`, with the hardware that it fits alone, and
    whether with headroom.
    """
    fitting: list[T] = []
    for group in groups:
        if roomy := [x for x, has_headroom in group if has_headroom]:
            return max(roomy, key=speed)
        fitting = fitting or [x for x, _ in group]
    return max(fitting, key=speed, default=None)
