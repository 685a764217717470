"""`short`, `percent`, `degrees`: the numbers of examples as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp

TEMPERATURES = (1, 0.5, 2)


def softmax(scores: Sequence[float]) -> list[float]:
    """Return the shares of scores."""
    most = max(scores)
    powers = [exp(x - most) for x in scores]
    return [x / sum(powers) for x in powers]


def short(x: float) -> str:
    """Return a number with three digits, a small one with as many behind the point."""
    written = f"{x:.{1 if abs(x) >= 10 else 2 if abs(x) >= 1 else 3}f}"
    return written.replace("-", "−") if float(written) else "0"


def list_numbers(numbers: Iterable[float]) -> str:
    """Return numbers with commas between them."""
    return ", ".join(map(short, numbers))


def degrees(angle: float) -> str:
    """Return an angle."""
    return f"{angle:.0f}°" if angle >= 1 else f"{angle:.2g}°"


def percent(share: float) -> str:
    """Return a share in percent, as `percentOf` of the page does: what is not everything is never
    100%, and what is something never 0%.
    """
    if 0.9995 <= share < 1:
        return ">99.9%"
    if share < 0.0005:
        return "<0.1%"
    is_near = share < 0.0995 or 0.9945 < share < 1
    return f"{100 * share:.{1 if is_near else 0}f}%"
