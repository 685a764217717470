"""Numbers as people read them."""

from __future__ import annotations

from fractions import Fraction

UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))


def short_count(parameters: int) -> str:
    """The everyday name of a count, to three digits: 8.03B, 671B, 135M."""
    for unit, letter in UNITS:
        if parameters * 2000 >= unit * 1999:
            value = parameters / unit
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{letter}"
    return str(parameters)


def format_percent(share: Fraction) -> str:
    """A share to a hundredth of a percent."""
    return f"{float(share * 100):.2f}%"


def format_ranges(found: tuple[tuple[int, int, int], ...]) -> str:
    """Layer numbers: `0–31`, `0, 2, … 30`."""
    parts = []
    for first, last, step in found:
        if first == last:
            parts.append(str(first))
        elif step == 1:
            parts.append(f"{first}–{last}")
        elif last == first + step:
            parts += [str(first), str(last)]
        else:
            parts.append(f"{first}, {first + step}, … {last}")
    if sum(map(len, parts[:3])) > 20:
        return f"{parts[0]} … {parts[-1].rpartition(' ')[2]}"
    return ", ".join(parts[:3]) + (f" … {parts[-1]}" if len(parts) > 3 else "")


def format_si(value: Fraction | int) -> str:
    """A number of operations to four digits, in thousands of thousands: 16.06G, 140.6T, 3.797Y."""
    for power, letter in zip(range(24, 0, -3), "YZEPTGMk", strict=True):
        if value * 10_000 >= 9_999_5 * 10 ** (power - 1):
            scaled = float(Fraction(value) / 10**power)
            return f"{scaled:.{3 if scaled < 9.9995 else 2 if scaled < 99.995 else 1}f}{letter}"
    return f"{float(value):g}"
