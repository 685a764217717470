"""`Lesson`: a name, what it explains, and the exercises that it makes from a model's tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...checkpoint.naming.scheme import UnnamedWeight
from ...core.expr import Expr
from ...utils.number_format import group_digits
from ...utils.record_type import Record
from .account import Account, Product, of_factors
from .exercise import Exercise
from .mistake import Mistake
from .study import ModelStudy, Study


class Lesson(Record):
    """A lesson about any model that has what it is about."""

    name: str
    title: str
    model: str  # the preset that it is about unless another is named
    lacks: Callable[[ModelStudy], str]  # why a model has no such lesson; empty if it has
    explain: Callable[[ModelStudy], Iterable[str]]
    exercises: Callable[[ModelStudy], Iterable[Exercise]]


class Asker:
    """Makes the exercises of one lesson about one model."""

    def __init__(self, lesson: str, study: Study) -> None:
        self.lesson, self.study = lesson, study

    def ask(
        self,
        name: str,
        text: str,
        account: Account | int,
        *,
        unit: str = "parameters",
        kind: str = "weights",
        hint: str,
        why: str = "",
        below: str = "",
        above: str = "",
        mistakes: Sequence[Mistake] = (),
        core: bool = True,
        given: Mapping[str, int] | None = None,
    ) -> Exercise:
        """Return an exercise; a number is a dimension or another plain expression."""
        found = account if isinstance(account, Account) else number_account(account)
        return Exercise(
            id=f"{self.lesson}/{name.replace(' ', '-')}",
            text=text,
            unit=unit,
            kind=kind,
            account=found,
            hint=hint,
            study=self.study,
            why=why,
            below=below,
            above=above,
            mistakes=tuple(mistakes),
            core=core,
            given=given or {},
        )


def number_account(number: int) -> Account:
    """Return the account of one number."""
    return Account(products=(of_factors("number", out=number),))


def instead(
    name: str, number: int | None, sentence: str, *, kind: str = "shape", bits: float = 1.0
) -> Mistake:
    """Return a mistake of one exercise, which gives this number."""
    return Mistake(
        name=name,
        kinds=(kind,),
        bits=bits,
        change=lambda _study, _account: None if number is None else number_account(number),
        sentence=sentence.replace("{", "{{").replace("}", "}}"),
        alone=True,
    )


def written(x: int) -> str:
    """Return a dimension in letters and numbers: `H·h = 32·128 = 4,096`."""
    e = Expr.const(x)
    value = f"{e:,}"
    numbers = group_digits(e.numbers)
    return " = ".join(dict.fromkeys((e.symbol if e.letters else value, numbers, value)))


def file_name(study: ModelStudy, path: str) -> str:
    """Return the name of a weight's module in files: `q_proj`; its own name where it has none."""
    for pattern in (f"layers.{{l}}.{path}", path):
        try:
            stored = study.model.family.hf.stored_name(pattern)
        except UnnamedWeight:
            continue
        parts = [x for x in stored.split(".") if x not in ("weight", "bias")]
        return parts[-1]
    return path.removesuffix(".weight").rpartition(".")[2]


def matrices(account: Account) -> list[Product]:
    """Return the matrices among the weights of an account."""
    return [x for x in account.products if x.factor("in") is not None and x.role == "matmul"]
