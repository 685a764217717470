"""`parse_answer`: a number as a learner writes it, such as `16,777,216`, `4096*4096`, `d·H·h`,
`2^24`, `16.8M` or `1.07 GB`. The parser is bounded, and evaluates nothing but arithmetic.

A number in full is exact. One with a decimal point, an exponent, or a suffix is rounded to the
digits that it shows, and stands for every number that rounds to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from ...utils.errors import LlamathError, safe
from ...utils.record_type import Record
from ...utils.units import SIZES, TOKENS

MAX_LENGTH = 400
"""The longest answer, in characters."""
_MAX_DIGITS = 40
_MAX_DEPTH = 20
_MAX_EXPONENT = 200
_MAX_BITS = 400
_HINT = "write a number (16,777,216 or 16.8M) or a product (4096*4096, d*H*h, 2^24)"

_PREFIXES = {x.removesuffix("B"): n for x, n in SIZES.items() if "i" not in x and x != "EB"}
"""Of numbers; E is a letter of models with experts."""
_THOUSANDS = {x: n for x, n in _PREFIXES.items() if x} | {"B": 10**9}
_COUNTED = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_FLOPS = {f"{x}{end}": n for x, n in _PREFIXES.items() for end in ("FLOPs", "FLOPS", "FLOP", "F")}
SUFFIXES: Mapping[str, Mapping[str, int]] = {
    "bytes": _THOUSANDS | _COUNTED | SIZES | {"bytes": 1, "byte": 1},
    "FLOPs": _THOUSANDS | _COUNTED | _FLOPS,
    "tokens": _COUNTED | {x: n for x, n in TOKENS.items() if x},
    "": _THOUSANDS | _COUNTED,
}
"""Unit of a question → what may follow a number; tokens are counted as everywhere here, 128k is
131,072.
"""
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


@cache
def _tokens() -> re.Pattern[str]:
    """Return the pattern of a token, which worksheets do not need."""
    return re.compile(
        r"(?P<number>(?:\d{1,3}(?:[,_' \u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
        r"(?P<ten>[eE][+-]?\d+)?"
        r"|(?P<word>[A-Za-z][A-Za-z0-9_]*['′]*)"
        r"|(?P<power>\*\*|\^)|(?P<raised>[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
        r"|(?P<operator>[-+−*/()×·⋅÷%])"
        r"|(?P<space>[\s\u00a0\u2009\u202f]+)",
        re.ASCII,
    )


class NotANumber(LlamathError):
    """An answer that is no number."""


class Answer(Record):
    """A number with the range that it stands for: a rounded one is `low` ≤ n ≤ `high`."""

    text: str
    value: Fraction
    low: Fraction
    high: Fraction
    digits: int  # of a rounded number, without leading zeros; 0: it is exact

    @property
    def is_rounded(self) -> bool:
        """Whether it stands for more than one number."""
        return self.low < self.high

    def fits(self, number: Fraction | int) -> bool:
        """Return whether a number is this one, rounded to the digits given."""
        return self.low <= number <= self.high

    def could_mean(self, number: Fraction | int) -> bool:
        """Return whether a number, rounded or cut to the digits given, is this one."""
        if not self.is_rounded:
            return number == self.value
        return self.digits > 1 and self.low <= number < 2 * self.high - self.value

    @property
    def is_coarse(self) -> bool:
        """Whether it has a single digit, to which many numbers round."""
        return self.is_rounded and self.digits < 2


def names_letters(text: str, letters: Mapping[str, int]) -> bool:
    """Whether an answer is a formula of letters alone: one with numbers that are sizes of letters
    may mean these.
    """
    tokens = _Parser(text.strip().lstrip("=≈~"), letters, {}).tokens
    sizes = {str(int(n)) for n in letters.values()}
    numbers = {re.sub(r"\D", "", x) for kind, x in tokens if kind == "number"}
    return any(kind == "word" for kind, _ in tokens) and not numbers & sizes


class _Value(NamedTuple):
    value: Fraction
    half: Fraction = Fraction(0)  # half of the last digit that is shown
    digits: int = 0


def parse_answer(text: str, letters: Mapping[str, int] | None = None, unit: str = "") -> Answer:
    """Parse an answer in a unit; `letters` are the dimensions that it may name."""
    if not isinstance(text, str):
        raise NotANumber(f"{safe(repr(text), 40)} is no text with a number", hint=_HINT)
    if len(text) > MAX_LENGTH:
        raise NotANumber(f"an answer has at most {MAX_LENGTH} characters", hint=_HINT)
    if not text.strip():
        raise NotANumber("the answer is empty", hint=_HINT)
    written = text.strip().removeprefix("=").removeprefix("≈").removeprefix("~").strip()
    parser = _Parser(written, letters or {}, SUFFIXES.get(unit, SUFFIXES[""]))
    found = parser.parse()
    return Answer(
        text=text.strip(),
        value=found.value,
        low=found.value - found.half,
        high=found.value + found.half,
        digits=found.digits if found.half else 0,
    )


class _Parser:
    """Recursive descent over the tokens of one answer."""

    def __init__(self, text: str, letters: Mapping[str, int], suffixes: Mapping[str, int]) -> None:
        self.text, self.letters, self.suffixes = text, letters, suffixes
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            match = _tokens().match(text, at)
            if match is None:
                raise self.error(f"{safe(repr(text[at]), 10)} is not understood")
            kind = match.lastgroup or ""
            if kind != "space":
                self.tokens.append(("number" if kind == "ten" else kind, match[0]))
            at = match.end()
        self.at = self.depth = 0

    def error(self, problem: str) -> NotANumber:
        return NotANumber(f"{safe(repr(self.text), 60)}: {problem}", hint=_HINT)

    def parse(self) -> _Value:
        found = self.sum()
        if self.at < len(self.tokens):
            raise self.error(f"{safe(self.tokens[self.at][1], 20)!r} is not expected here")
        return found

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, *operators: str) -> str:
        """Return the next operator if it is one of these."""
        kind, text = self.peek()
        if kind in ("operator", "power") and text in operators:
            self.at += 1
            return text
        return ""

    def sum(self) -> _Value:
        found = self.product()
        while sign := self.take("+", "-", "−"):
            other = self.product()
            value = found.value + other.value if sign == "+" else found.value - other.value
            found = _Value(value, found.half + other.half, max(found.digits, other.digits))
        return found

    def product(self) -> _Value:
        found = self.signed()
        while True:
            if operator := self.take("*", "×", "·", "⋅", "/", "÷"):
                other = self.signed()
            elif self.peek() in (("word", "x"), ("word", "X")) and "x" not in self.letters:
                self.at += 1
                operator, other = "*", self.signed()
            elif self.peek()[0] == "word" or self.peek() == ("operator", "("):
                operator, other = "*", self.signed()
            else:
                return found
            found = self.combined(found, other, operator in ("/", "÷"))

    def combined(self, a: _Value, b: _Value, is_quotient: bool) -> _Value:
        if is_quotient and not b.value:
            raise self.error("a division by zero")
        if is_quotient:
            b = _Value(1 / b.value, b.half / b.value**2, b.digits)
        half = abs(a.value) * b.half + abs(b.value) * a.half
        return self.bounded(_Value(a.value * b.value, half, max(a.digits, b.digits)))

    def bounded(self, found: _Value) -> _Value:
        size = found.value
        if size.numerator.bit_length() > _MAX_BITS or size.denominator.bit_length() > _MAX_BITS:
            raise self.error("the number is too large")
        return found

    def signed(self) -> _Value:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"more than {_MAX_DEPTH} brackets or signs inside each other")
        if sign := self.take("-", "−", "+"):
            found = self.signed()
            found = found if sign == "+" else found._replace(value=-found.value)
        else:
            found = self.power()
        self.depth -= 1
        return found

    def power(self) -> _Value:
        base = self.atom()
        kind, text = self.peek()
        if kind == "raised":
            self.at += 1
            if len(text) > 4:
                raise self.error("the exponent is too large")
            return self.raised(base, Fraction(int(text.translate(_SUPERSCRIPTS))))
        if self.take("**", "^"):
            return self.raised(base, self.signed().value)
        return base

    def raised(self, base: _Value, exponent: Fraction) -> _Value:
        if exponent.denominator != 1 or not 0 <= exponent <= _MAX_EXPONENT:
            raise self.error(f"an exponent is a whole number up to {_MAX_EXPONENT}")
        n = int(exponent)
        size = max(base.value.numerator.bit_length(), base.value.denominator.bit_length())
        if size * n > 2 * _MAX_BITS:
            raise self.error("the number is too large")
        if n == 0:
            return _Value(Fraction(1))
        half = n * abs(base.value) ** (n - 1) * base.half
        return self.bounded(_Value(base.value**n, half, base.digits))

    def atom(self) -> _Value:
        kind, text = self.peek()
        self.at += 1
        if kind == "number":
            return self.number(text)
        if kind == "word":
            return self.bounded(_Value(Fraction(self.letters_in(text))))
        if (kind, text) == ("operator", "("):
            found = self.sum()
            if not self.take(")"):
                raise self.error("a bracket is not closed")
            return found
        found_text = f"found {safe(text, 20)!r}" if text else "it ends"
        raise self.error(f"a number was expected, but {found_text}")

    def letters_in(self, word: str) -> int:
        """Return the value of a letter, or of several without a sign between them: `dF`."""
        value, rest = 1, word
        while rest:
            name = max((x for x in self.letters if rest.startswith(x)), key=len, default="")
            if not name:
                known = ", ".join(self.letters)
                raise self.error(
                    f"{safe(word, 20)!r} is none of the letters {safe(known, 80)}"
                    if known
                    else f"{safe(word, 20)!r} is no letter of this question, which has none"
                )
            value, rest = value * int(self.letters[name]), rest[len(name) :]
        return value

    def number(self, text: str) -> _Value:
        mantissa, _, exponent = re.sub(r"[,_' \u00a0\u2009\u202f]", "", text).lower().partition("e")
        digits = mantissa.replace(".", "")
        if len(digits) > _MAX_DIGITS:
            raise self.error(f"a number has at most {_MAX_DIGITS} digits")
        if exponent and (len(exponent) > 6 or abs(int(exponent)) > 60):
            raise self.error("the exponent is too large")
        scale = Fraction(10) ** int(exponent) if exponent else Fraction(1)
        unit = Fraction(1, 10 ** len(mantissa.partition(".")[2]))
        is_rounded = "." in mantissa or bool(exponent)
        kind, word = self.peek()
        if kind == "operator" and word == "%":
            self.at += 1
            scale, is_rounded = scale / 100, True
        elif kind == "word" and word in self.suffixes:
            self.at += 1
            factor = self.suffixes[word]
            scale, is_rounded = scale * factor, is_rounded or factor > 1
        value = Fraction(mantissa if mantissa[0] != "." else f"0{mantissa}") * scale
        half = unit * scale / 2 if is_rounded else Fraction(0)
        return _Value(value, half, len(digits.lstrip("0")))
