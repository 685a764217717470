"""The two orders of a head's rows: the numbers that turn together are halves of the head apart, or neighbours (`rotary` in `scheme`)."""

from __future__ import annotations


def interleaved_order(size: int) -> list[int]:
    """For each row of a head in neighbouring pairs, which row it is of one in halves: 0, h/2, 1, h/2 + 1 and so on."""
    return [i + j * (size // 2) for i in range(size // 2) for j in (0, 1)]


def half_split_order(size: int) -> list[int]:
    """The way back: the even rows, then the odd ones."""
    return [2 * i + j for j in (0, 1) for i in range(size // 2)]
