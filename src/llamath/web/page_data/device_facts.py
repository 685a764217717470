"""Published facts of a device as formulas: the vendor's figure in its unit, and in base units."""

from __future__ import annotations

from collections.abc import Mapping

from ...hardware import DTYPES, Device

_BINARY, _DECIMAL = {"2³⁰": 2**30, "2²⁰": 2**20}, {"10¹²": 10**12, "10⁹": 10**9, "10⁶": 10**6}
Formula = list[str]


def _fact(label: str, n: int, unit: str, units: Mapping[str, int] = _DECIMAL) -> Formula:
    """Return a fact with its number in the largest short unit, and in base units."""
    for name, size in units.items():
        if n >= size and n * 1000 % size == 0:
            return [label, f"{n / size:,.10g}·{name}", f"{n:,} {unit}"]
    return [label, f"{n:,} {unit}"]


def memory(x: Device) -> list[Formula]:
    """Return the nominal and the available memory."""
    units = _BINARY if x.nominal % 2**30 == 0 else _DECIMAL
    nominal = _fact("nominal memory", x.nominal, "bytes", units)
    return [nominal] + ([_fact("memory that the driver reports", x.memory, "bytes", _BINARY)] if x.memory != x.nominal else [])


def rates(x: Device) -> dict[str, Formula]:
    """Return the bandwidth, and the FLOP/s of each dtype."""
    bandwidth = {"bandwidth": _fact("memory bandwidth", x.bandwidth, "bytes per second")}
    return bandwidth | {dtype: _fact(f"dense peak in {dtype}", x.flops[dtype], "FLOP/s") for dtype in DTYPES if dtype in x.flops}
