"""Numbers as text: `8.03B`, `50.75%`, `16.06 GB (14.96 GiB)`, `−1,024`, `layers 0–31`, `3
files`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .number_marks import Ranges, grouped_marks, mark, own_text, text_if_equal

if TYPE_CHECKING:
    from fractions import Fraction

_LONG_NUMBER = re.compile(r"\d{4,}")
_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))


def short_count(count: int) -> str:
    """Return a count to three digits: 8.03B, 671B, 135M."""
    n = int(count)
    for unit, letter in _UNITS:
        if n * 2000 >= unit * 1999:
            value = n / unit
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return mark(f"{value:.{digits}f}{letter}", "short", count)
    return mark(str(n), "short", count)


def format_signed(n: int) -> str:
    """Return a number with its sign, also if it is positive: +1,024."""
    return f"+{n:,}" if n > 0 else f"−{-n:,}" if n < 0 else "0"


def format_short_signed(n: int) -> str:
    """Return a number with its sign to three digits: +1.29B."""
    return f"{'+' if n > 0 else '−' if n < 0 else ''}{short_count(abs(n))}"


def format_percent(share: Fraction | float, digits: int = 2) -> str:
    """Return a share in percent, to a hundredth of a percent if not said otherwise."""
    return f"{float(share * 100):.{digits}f}%"


def format_giga(size: int, unit: int) -> str:
    """Return bytes in GB (unit 10⁹) or GiB (unit 2³⁰): to a hundredth, small ones to two digits."""
    value = size / unit
    return (
        f"{value:,.2f}"
        if value >= 0.095 or not size
        else f"{value:.2g}"
        if value >= 1e-4
        else f"{value:.0e}"
    )


def format_bytes(size: int) -> str:
    """Return bytes in GB and in GiB."""
    return f"{format_giga(size, 10**9)} GB ({format_giga(size, 2**30)} GiB)"


def short_tokens(tokens: int) -> str:
    """Return a number of tokens as in the names of models: 128k is 131,072; any other in full."""
    n = int(tokens)
    return mark(f"{n // 1024:,}k" if n >= 1024 and n % 1024 == 0 else f"{n:,}", "tokens", tokens)


def short_bytes(size: int) -> str:
    """Return bytes in binary units to three digits: 128 KiB, 10.7 GiB."""
    n = int(size)
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n >= unit:
            value = n / unit
            text = (
                f"{value:,.0f} {name}"
                if value >= 99.95 or value == int(value)
                else f"{value:.3g} {name}"
            )
            return mark(text, "bytes", size)
    return mark(f"{n:,} B", "bytes", size)


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 file`, `1,024 tokens`; `plural` is for nouns that do not
    take an s.
    """
    return f"{count:,} {text_if_equal(count, 1, noun, plural or f'{noun}s')}"


def format_list(items: Iterable[object], limit: int | None = None) -> str:
    """Return items separated by commas; of more than `limit`, the first ones and how many more
    there are.
    """
    texts = list(map(str, items))
    if limit is None or len(texts) <= limit:
        return ", ".join(texts)
    return f"{', '.join(texts[:limit])} and {len(texts) - limit:,} more"


def format_ranges(ranges: tuple[tuple[int, int, int], ...]) -> str:
    """Return ranges of layers, each (first, last, step), as text: `0–31`, `0, 2, … 30`."""
    text = _written_ranges(ranges)
    if not isinstance(ranges, Ranges):
        return text
    return mark(text, "ranges", ranges.number, ranges.members)


def _written_ranges(ranges: tuple[tuple[int, int, int], ...]) -> str:
    parts = []
    for first, last, step in ranges:
        if first == last:
            parts.append(str(first))
        elif step == 1:
            parts.append(f"{first}–{last}")
        elif last == first + step:
            parts += [str(first), str(last)]
        else:
            parts.append(f"{first}, {first + step}, … {last}")
    if sum(len(own_text(x)) for x in parts[:3]) > 20:
        return f"{parts[0]} … {parts[-1].rpartition(' ')[2]}"
    return ", ".join(parts[:3]) + (f" … {parts[-1]}" if len(parts) > 3 else "")


def format_si(value: Fraction | int) -> str:
    """Return a number of operations to four digits with an SI prefix: 16.06G, 140.6T, 3.797Y."""
    from fractions import Fraction

    for power, letter in zip(range(24, 0, -3), "YZEPTGMk", strict=True):
        if value * 10_000 >= 9_999_5 * 10 ** (power - 1):
            scaled = float(Fraction(value) / 10**power)
            return f"{scaled:.{3 if scaled < 9.9995 else 2 if scaled < 99.995 else 1}f}{letter}"
    return f"{float(value):g}"


def format_flops(n: int) -> str:
    """Return a number of FLOPs: 140.6 TFLOPs."""
    text = format_si(n)
    return mark(
        f"{text[:-1]} {text[-1]}FLOPs" if text[-1].isalpha() else f"{text} FLOPs", "FLOPs", n
    )


def format_rate(value: float) -> str:
    """Return tokens per second to three digits."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def group_digits(formula: str) -> str:
    """Write the numbers of a formula with commas: `8192·2` as `8,192·2`."""
    return _LONG_NUMBER.sub(lambda x: f"{int(x[0]):,}", grouped_marks(formula))
