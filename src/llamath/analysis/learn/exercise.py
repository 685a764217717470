"""`Exercise`: a question of a lesson as data: its text, the answer as an expression in letters, its
unit, a hint and the solution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ...core.expr import Expr
from ...utils.number_format import format_bytes, format_flops, group_digits, short_count
from ...utils.record_type import Record
from .account import Account
from .answer_parser import Answer, parse_answer
from .mistake import Mistake
from .study import Study


class Exercise(Record):
    """A question with the tree's own number as its answer."""

    json_fields: ClassVar[tuple[str, ...]] = ("id", "text", "unit", "letters", "hint")

    id: str  # lesson/name: matrix/q_proj
    text: str
    unit: str  # parameters, bytes, FLOPs, tokens, heads, …
    kind: str  # one of `mistake.KINDS`
    account: Account
    hint: str
    study: Study
    why: str = ""  # a sentence below the solution
    mistakes: tuple[Mistake, ...] = ()  # those that only this question invites
    core: bool = True  # asked in the terminal; the others are for worksheets
    below: str = ""  # what a smaller number left out, if no mistake gives it
    above: str = ""  # what a larger one counted
    given: Mapping[str, int] = {}  # letters that are not the model's: T, B

    @property
    def answer(self) -> Expr:
        """The answer, an exact integer with its formula."""
        return self.account.value

    @property
    def reason(self) -> str:
        """The reason for the answer, as a sentence."""
        said = self.why or self.hint
        return f"{said[:1].upper()}{said[1:]}{'' if said.endswith('.') else '.'}"

    @property
    def letters(self) -> Mapping[str, int]:
        """The letters that an answer may use."""
        return {**self.study.letters, **self.given}

    def parse(self, text: str) -> Answer:
        """Parse an answer to this question."""
        return parse_answer(text, self.letters, self.unit)

    @property
    def solution(self) -> tuple[str, ...]:
        """The answer in letters, in numbers, and the result; each only where it says more."""
        return tuple(dict.fromkeys(self._solution()))

    def _solution(self) -> Iterator[str]:
        value = int(self.answer)
        result = f"{value:,} {self.unit}".replace("-", "−")
        if self.answer.symbol != str(value):
            yield self.answer.symbol
            if self.answer.numbers != str(value):
                yield f"= {group_digits(self.answer.numbers)}"
            yield f"= {result}"
        else:
            yield result
        if self.unit == "bytes" and value >= 10**6:
            yield f"= {format_bytes(value)}"
        elif self.unit == "FLOPs" and value >= 10**6:
            yield f"≈ {format_flops(value)}"
        elif abs(value) >= 10**6 and value % 10**6:
            yield f"≈ {'−' if value < 0 else ''}{short_count(abs(value))}"
        if self.why:
            yield self.why

    def to_json(self, *, solutions: bool = False) -> dict[str, Any]:
        """Return the question as an object; with `solutions`, with its answer."""
        found = super().to_json()
        if solutions:
            found |= {
                "answer": int(self.answer),
                "formula": self.answer.symbol,
                "solution": list(self.solution),
            }
        return found
