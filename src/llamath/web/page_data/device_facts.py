"""Published facts of a device as formulas: the vendor's figure in its unit, and in base units."""

from __future__ import annotations

from collections.abc import Mapping

from ...hardware import DTYPES, Device

BINARY, DECIMAL = {"2³⁰": 2**30, "2²⁰": 2**20}, {"10¹²": 10**12, "10⁹": 10**9, "10⁶": 10**6}
Formula = list[str]


def fact(what: str, n: int, unit: str, units: Mapping[str, int] = DECIMAL) -> Formula:
    """Return a fact with its number in the largest short unit, and in base units."""
    for name, size in units.items():
        if n >= size and n * 1000 % size == 0:
            return [what, f"{n / size:,.10g}·{name}", f"{n:,} {unit}"]
    return [what, f"{n:,} {unit}"]


def memory(x: Device) -> list[Formula]:
    """Return the nominal and the available memory."""
    units = BINARY if x.nominal % 2**30 == 0 else DECIMAL
    sold = fact("memory, as sold", x.nominal, "bytes", units)
    return [sold] + ([fact("memory, as its driver reports it", x.memory, "bytes", BINARY)] if x.memory != x.nominal else [])


def rates(x: Device) -> dict[str, Formula]:
    """Return the bandwidth, and the FLOP/s of each dtype."""
    found = {"bandwidth": fact("bandwidth of its memory", x.bandwidth, "bytes a second")}
    return found | {dtype: fact(f"dense products in {dtype}", x.flops[dtype], "FLOP/s") for dtype in DTYPES if dtype in x.flops}
