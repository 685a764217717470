"""Published facts of a device as formulas: what its vendor says, in the unit in which it is said, and what that is in ones."""

from __future__ import annotations

from collections.abc import Mapping

from ...hardware import DTYPES, Device

BINARY, DECIMAL = {"2³⁰": 2**30, "2²⁰": 2**20}, {"10¹²": 10**12, "10⁹": 10**9, "10⁶": 10**6}
Formula = list[str]


def fact(what: str, n: int, unit: str, units: Mapping[str, int] = DECIMAL) -> Formula:
    """What it is, its number in the largest unit in which that is short, and in ones."""
    for name, size in units.items():
        if n >= size and n * 1000 % size == 0:
            return [what, f"{n / size:,.10g}·{name}", f"{n:,} {unit}"]
    return [what, f"{n:,} {unit}"]


def memory(x: Device) -> list[Formula]:
    """What is sold, and what a program can have of it."""
    units = BINARY if x.nominal % 2**30 == 0 else DECIMAL
    sold = fact("memory, as sold", x.nominal, "bytes", units)
    return [sold] + ([fact("memory, as its driver reports it", x.memory, "bytes", BINARY)] if x.memory != x.nominal else [])


def rates(x: Device) -> dict[str, Formula]:
    """Bandwidth, and the products of each type."""
    found = {"bandwidth": fact("bandwidth of its memory", x.bandwidth, "bytes a second")}
    return found | {dtype: fact(f"dense products in {dtype}", x.flops[dtype], "FLOP/s") for dtype in DTYPES if dtype in x.flops}
