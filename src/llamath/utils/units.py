"""Strict parsing of quantities: `24GB` is 24·10⁹ bytes, `24GiB` 24·2³⁰, `128k` tokens are
131,072, `405B` is a count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import LlamathError, safe
from .record_type import Record

if TYPE_CHECKING:
    from fractions import Fraction

_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
SIZES = {"B": 1, **{f"{x}B": n for x, n in (_DECIMAL | _BINARY).items()}}
_RATES = {f"{x}/s": n for x, n in SIZES.items()}
_BITS = {f"{x}bit/s": n for x, n in _DECIMAL.items()}
FLOPS = {
    f"{x}{end}": n for x, n in _DECIMAL.items() for end in ("F", "FLOPS", "FLOP/s", "OPS", "OP/s")
}
TOKENS = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20}
COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}

NUMBER = (
    r"(?P<whole>\d{1,3}(?:[,_]\d{3})+"
    r"|\d{1,30})(?:\.(?P<part>\d{1,20}))?(?:[eE]\+?(?P<ten>\d{1,2}))?"
)
_WRITTEN = rf"(?a)\s*+{NUMBER}\s*+(?P<unit>[A-Za-z/]*+)\s*+"
LIMIT = 2**63
"""Upper limit of sizes, rates and numbers of tokens."""


class Quantity(Record):
    """A count with its precision: `405B` is 405·10⁹ to three digits, `405853388800` is exact."""

    value: int
    digits: int  # number of given digits, without leading zeros
    exact: bool  # given to the last digit


def parse_bytes(text: str) -> int:
    """Parse a size in bytes: `24GB`, `24GiB`, `512 MiB`."""
    hint = "use 24GB (24·10⁹ bytes) or 24GiB (24·2³⁰ bytes)"
    return _whole(text, "a size", SIZES, hint)


def parse_tokens(text: str) -> int:
    """Parse a number of tokens: `4096`, `128k` = 131,072 or `1M` = 1,048,576."""
    return _whole(text, "a number of tokens", TOKENS, "use 4096, or 128k for 131,072 = 128·1,024")


def tokens_note(text: str) -> str:
    """Return a note on the meaning of the letter in a number of tokens; "" without a letter."""
    return f"{text.strip()} is {parse_tokens(text):,} tokens" if not text.strip().isdigit() else ""


def parse_bandwidth(text: str) -> int:
    """Parse bytes per second: `3.35TB/s`, `900GB/s`, `400Gbit/s`."""
    hint = "use 3.35TB/s, 900GB/s or 400Gbit/s"
    if (match := re.fullmatch(_WRITTEN, text)) and match["unit"] in _BITS:
        return _bounded(text, "a bandwidth", _number(match) * _BITS[match["unit"]] / 8, hint)
    return _whole(text, "a bandwidth", _RATES, hint)


def parse_flops(text: str) -> int:
    """Parse floating-point operations per second: `989TF`, `989TFLOPS`, `1.98PF`."""
    return _whole(text, "a number of FLOP/s", FLOPS, "use 989TF or 1.98PF, without sparsity")


def parse_quantity(text: str) -> Quantity:
    """Parse a count of parameters, tokens or operations: `405B`, `1.5e9`, `500M`,
    `8,030,261,248`.
    """
    hint = "use 405B, 1.5e9, 500M or 8030261248"
    match = re.fullmatch(_WRITTEN, text)
    if not match or match["unit"].lower() not in COUNTS:
        raise _unread(text, "a count", hint)
    value = _number(match) * COUNTS[match["unit"].lower()]
    if value.denominator != 1 or not value:
        raise LlamathError(f"{safe(text, 60)} is not a positive whole number", hint=hint)
    digits = re.sub(r"\D", "", match["whole"] + (match["part"] or "")).lstrip("0")
    return Quantity(
        value=int(value),
        digits=len(digits),
        exact=not (match["unit"] or match["ten"] or match["part"]),
    )


def parse_count(text: str) -> int:
    """Parse a count and return its value."""
    return parse_quantity(text).value


def _whole(text: str, what: str, units: Mapping[str, int], hint: str) -> int:
    match = re.fullmatch(_WRITTEN, text)
    if not match or match["unit"] not in units:
        raise _unread(text, what, hint)
    value = _number(match) * units[match["unit"]]
    if units is TOKENS and value.denominator != 1:
        raise LlamathError(f"{safe(text, 60)} is not a whole number of tokens", hint=hint)
    return _bounded(text, what, value, hint)


def _number(found: re.Match[str]) -> Fraction:
    from fractions import Fraction

    whole = found["whole"].replace(",", "").replace("_", "")
    return Fraction(f"{whole}.{found['part'] or 0}e{found['ten'] or 0}")


def _bounded(text: str, what: str, value: Fraction, hint: str) -> int:
    if not 1 <= value < LIMIT:
        raise LlamathError(
            f"{safe(text, 60)} is {'too large' if value >= LIMIT else 'too small'} for {what}",
            hint=hint,
        )
    return int(value)


def _unread(text: str, what: str, hint: str) -> LlamathError:
    return LlamathError(f"{safe(text, 60)!r} is not {what}{_why(text)}", hint=hint)


def _why(text: str) -> str:
    """The reason why it is not valid, if known."""
    plain = text.strip()
    if plain.startswith(("-", "−")):
        return ": it is negative"
    match = re.fullmatch(_WRITTEN, plain)
    if not match:
        return ""
    unit = match["unit"]
    if not unit:
        return ": it has no unit"
    if unit in _DECIMAL or unit in _BINARY:
        return f": {unit} is ambiguous, by 1,000 or by 1,024"
    if re.fullmatch(r"[kKMGTPE]i?b(ps|/s)?", unit):
        return ": a small b is a bit"
    return f": unknown unit {unit}"
