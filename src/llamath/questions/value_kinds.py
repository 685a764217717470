"""Kinds of values: how each is read, from text or from a Python value, how it is written in a
signature, and what its JSON Schema is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..utils.errors import ArgumentError, LlamathError, safe
from ..utils.record_type import Record
from ..utils.units import (
    Quantity,
    parse_bandwidth,
    parse_bytes,
    parse_count,
    parse_quantity,
    parse_tokens,
)

if TYPE_CHECKING:
    from fractions import Fraction

    from ..hardware import Device

T = TypeVar("T")
S = TypeVar("S")
MAX_TEXT = 4096
"""The longest text of a value, in characters."""
MAX_VALUES = 100
"""The most values of one argument."""
MAX_DIMENSION = 2**40
_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
Words = Callable[[], Iterable[tuple[str, str]]]
"""The words that a shell completes, each with what it stands for."""


class Kind(Generic[T]):
    """A kind of values. `read` raises a ValueError or a LlamathError with the reason, if it has
    more to say than what was expected.
    """

    keys_in_words = ""
    """The keys of settings that are written as `key=value`."""

    def __init__(
        self,
        read: Callable[[object], T],
        *,
        expected: str,
        annotation: str,
        metavar: str = "TEXT",
        schema: dict[str, Any] | None = None,
        words: Words | None = None,
    ) -> None:
        self.read, self.expected, self.annotation = read, expected, annotation
        self.metavar, self.words = metavar, words
        self.schema: dict[str, Any] = _TEXT if schema is None else schema

    def parse(self, argument: str, value: object) -> T:
        """Return the value of an argument; what cannot be read is an error that names it."""
        try:
            return self.read(value)
        except ArgumentError:
            raise
        except LlamathError as error:
            raise ArgumentError(argument, f": {error}", hint=error.hint) from None
        except ValueError:
            found = f" should be {self.expected}, found {safe(repr(value), 60)}"
            raise ArgumentError(argument, found) from None

    def or_word(self, word: S) -> Kind[T | S]:
        """Return a kind that also accepts a word."""
        return Kind(
            lambda value: word if value == word else self.read(value),
            expected=self.expected,
            annotation=self.annotation,
            metavar=self.metavar,
            schema=self.schema,
            words=self.words,
        )

    def several(self) -> Several[T]:
        """Return a kind of one or several values."""
        return Several(self)


class Several(Kind[tuple[T, ...]]):
    """One value, or several."""

    def __init__(self, kind: Kind[T]) -> None:
        self.kind = kind
        super().__init__(
            lambda value: tuple(kind.read(x) for x in _items(value)),
            expected=kind.expected,
            annotation=f"{kind.annotation} | Sequence[{kind.annotation}]",
            metavar=kind.metavar,
            schema={"type": "array", "items": kind.schema, "maxItems": MAX_VALUES},
            words=kind.words,
        )

    def parse(self, argument: str, value: object) -> tuple[T, ...]:
        """Return the values; an error shows the one that cannot be read."""
        return tuple(self.kind.parse(argument, x) for x in _items(value))


def _items(value: object) -> Sequence[object]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def count_text(value: object) -> str:
    """Return a count as it is written: a float has the digits of its shortest form, so 8e9 is
    rounded and 8030261248.0 is exact.
    """
    from decimal import Decimal

    if isinstance(value, float):
        return str(Decimal(float.__repr__(value)).normalize())
    return str(value)


def whole(value: object, least: int = 1, most: int | None = None) -> int:
    """Read a whole number within bounds."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,20}\s*", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool):
        raise ValueError
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError from None
    if number < least or (most is not None and number > most):
        raise ValueError
    return number


def integer(least: int = 1, most: int = MAX_DIMENSION - 1, metavar: str = "N") -> Kind[int]:
    """Return a kind of whole numbers."""
    is_free = most >= MAX_DIMENSION - 1
    schema: dict[str, Any] = {"type": "integer", "minimum": least}
    return Kind(
        lambda value: whole(value, least, most),
        expected=(
            ("a positive integer" if least else "an integer of at least 0")
            if is_free
            else f"an integer from {least:,} to {most:,}"
        ),
        annotation="int",
        metavar=metavar,
        schema=schema if is_free else schema | {"maximum": most},
    )


def number(
    least: float, most: float, expected: str = "", metavar: str = "N", *, open_below: bool = False
) -> Kind[float]:
    """Return a kind of real numbers; with `open_below`, without the least one."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        found = float(value)
        if not least <= found <= most or (open_below and found == least):
            raise ValueError
        return found

    def read_plainly(value: object) -> float:
        try:
            return read(value)
        except ValueError:
            raise ValueError from None

    return Kind(
        read_plainly,
        expected=expected or f"a number from {least:g} to {most:g}",
        annotation="float",
        metavar=metavar,
        schema={
            "type": "number",
            "exclusiveMinimum" if open_below else "minimum": least,
            "maximum": most,
        },
    )


def text(example: str, metavar: str = "NAME", words: Sequence[str] = ()) -> Kind[str]:
    """Return a kind of text, with the words that a shell completes."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        return value

    return Kind(
        read,
        expected=f"text such as {example!r}",
        annotation="str",
        metavar=metavar,
        words=(lambda: [(x, "") for x in words]) if words else None,
    )


def choice(*names: str) -> Kind[Any]:
    """Return a kind with a few values."""

    def read(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind(
        read,
        expected=" or ".join(map(repr, names)),
        annotation=f"Literal[{', '.join(map(repr, names))}]",
        metavar=f"[{'|'.join(names)}]",
        schema={"type": "string", "enum": list(names)},
    )


def _yes_or_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("yes", "no", "true", "false"):
        raise ValueError
    return value in ("yes", "true")


def _quantity(parse: Callable[[str], int], expected: str, annotation: str) -> Kind[int]:
    """Return a kind of numbers with a unit."""

    def read(value: object) -> int:
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, float) and parse is parse_count:
            return parse(count_text(value))
        return whole(value)

    metavar = {"Tokens": "TOKENS", "Size": "SIZE", "Count": "COUNT", "Rate": "RATE"}[annotation]
    kinds = ["string", "integer"] if annotation in ("Tokens", "Count") else "string"
    return Kind(
        read,
        expected=expected,
        annotation=annotation,
        metavar=metavar,
        schema=_TEXT | {"type": kinds},
    )


class Target(Record):
    """A number of parameters to meet, and of those that a token uses: `47B-A13B`."""

    total: Quantity
    active: int | None = None


def _read_target(value: object) -> Target:
    if isinstance(value, Target):
        return value
    total, active = value, None
    if isinstance(value, str) and (match := re.fullmatch(r"(.+)-[Aa](.+)", value, re.DOTALL)):
        total, active = match[1], COUNT.read(match[2])
    COUNT.read(total)
    found = Target(total=parse_quantity(count_text(total)), active=active)
    if active is not None and active > found.total.value:
        raise LlamathError(f"{safe(str(value), 40)}: more active parameters than all")
    return found


def _read_range(value: object) -> tuple[int, int]:
    if isinstance(value, str):
        ends: Sequence[object] = value.split(":")
    else:
        ends = _items(value)
    if len(ends) not in (1, 2):
        raise ValueError
    low, high = (whole(x, 1, MAX_DIMENSION - 1) for x in (ends[0], ends[-1]))
    if low > high:
        raise ValueError
    return low, high


_FRACTION = r"(?ai)\s*(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[+-]?\d{1,2}|/\d{1,20})?\s*"
"""A number or a fraction; a large exponent would take memory in proportion to its value."""


def _fraction(value: Any) -> Fraction:
    from fractions import Fraction

    if isinstance(value, str) and not re.fullmatch(_FRACTION, value):
        raise ValueError
    return Fraction(value)


def _read_ratio(value: object) -> tuple[float, float]:
    ends: Sequence[Any] = value.split(":") if isinstance(value, str) else _items(value)
    try:
        numbers = [float(_fraction(x)) for x in ends]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        numbers = []
    if (
        len(numbers) not in (1, 2)
        or not all(1e-3 <= x <= 1e6 for x in numbers)
        or numbers[0] > numbers[-1]
    ):
        raise ValueError
    return numbers[0], numbers[-1]


def _read_share(value: object) -> Fraction:
    from fractions import Fraction

    written = str(value).strip()
    try:
        share = _fraction(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError from None
    is_number_of_percent = isinstance(value, str) and not written.endswith("%")
    if not 0 <= share <= Fraction(1, 2) or (is_number_of_percent and share >= Fraction(1, 10)):
        raise ValueError
    return share


def _read_seconds(value: object) -> float:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)\s*", value, re.ASCII)
        seconds = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else 0.0
    else:
        seconds = float(value) if isinstance(value, int | float) else 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def _read_gpus(value: object) -> tuple[int, Device]:
    from ..hardware import Device, parse_devices

    if isinstance(value, Device):
        return 1, value
    if not isinstance(value, str):
        raise ValueError
    return parse_devices(value)


def _gpu_words() -> Iterable[tuple[str, str]]:
    from ..hardware import find_devices

    return [(x.name, x.title) for x in find_devices().gpus]


class _GPUKind(Kind["tuple[int, Device]"]):
    """GPUs: how many, and which device."""

    def parse(self, argument: str, value: object) -> tuple[int, Device]:
        """Return the GPUs; an unknown name is an error of the catalog, which has suggestions."""
        if isinstance(value, str):
            return self.read(value)
        return super().parse(argument, value)


TOKENS = _quantity(parse_tokens, "a number of tokens such as 8192 or '128k'", "Tokens")
SIZE = _quantity(parse_bytes, "a number of bytes such as 25769803776, '24GiB' or '24GB'", "Size")
COUNT = _quantity(parse_count, "a count such as 8030261248, '405B' or '1.5e9'", "Count")
TARGET = Kind(
    _read_target,
    expected=f"{COUNT.expected}, or '47B-A13B'",
    annotation="Count",
    metavar="COUNT",
    schema=COUNT.schema,
)
"""A number of parameters that knows how exactly it was given."""
SERIES_NAME = text("llama-3", "MODEL")
"""The name of a series, a family or a model."""
RATE = _quantity(parse_bandwidth, "a bandwidth such as '7GB/s'", "Rate")
_MAX_TRAINING_TOKENS = 10**18


def _read_training_tokens(value: object) -> int:
    tokens = COUNT.read(value)
    if tokens >= _MAX_TRAINING_TOKENS:
        raise LlamathError(f"{safe(str(value), 40)}: more text than exists", hint="like 15.6T")
    return tokens


TRAINING_TOKENS = Kind(
    _read_training_tokens,
    expected=COUNT.expected,
    annotation="Count",
    metavar="COUNT",
    schema=COUNT.schema,
)
YES_OR_NO = Kind(
    _yes_or_no, expected="yes or no", annotation="bool", metavar="", schema={"type": "boolean"}
)
RANGE = Kind(
    _read_range,
    expected="a positive number or a range such as (60, 100) or '60:100'",
    annotation="Range",
)
RATIO = Kind(
    _read_ratio,
    expected="a ratio such as 3.5 or '8/3', or a range such as (2.5, 4)",
    annotation="Ratio",
)
SHARE = Kind(
    _read_share,
    expected="a share such as 0.005 or '0.5%', at most 50%",
    annotation="float | str | Fraction",
    metavar="SHARE",
)
SECONDS = Kind(
    _read_seconds,
    expected="a time such as '50ms' or 0.05 seconds",
    annotation="float | str",
    metavar="TIME",
)
GPU_NAMES: Kind[tuple[int, Device]] = _GPUKind(
    _read_gpus,
    expected="GPUs such as 'rtx-4090' or '8xh100', or a Device",
    annotation="GPUs",
    metavar="GPUS",
    words=_gpu_words,
)
