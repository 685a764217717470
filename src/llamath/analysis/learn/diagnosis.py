"""`check_answer`: whether an answer is right, and if not, which mistakes give exactly its number.

An exact answer is right if it is the number; a rounded one if the number rounds to it, with two
digits or more. A mistake is found if the wrong number is its number, by the same rule; two mistakes
together only for answers that are exact or have four digits, since coarser numbers fit by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

from ...catalog import presets
from ...render.report import Report
from ...render.tables import Part, Text
from ...utils.record_type import Record
from .account import Account, Product
from .answer_parser import Answer, NotANumber, names_letters, parse_answer
from .exercise import Exercise
from .mistake import Mistake
from .size_mistakes import SIZE_MISTAKES
from .study import Study
from .weight_mistakes import WEIGHT_MISTAKES

MISTAKES: tuple[Mistake, ...] = (*WEIGHT_MISTAKES, *SIZE_MISTAKES)
"""Every mistake that several questions invite."""
_DIGITS_OF_PAIRS = 4
_PAIR_BITS = 3.0
"""Two mistakes together are this many bits less likely than their bits say."""
_MOST_FINDINGS = 6
_UNITS_OFF = Fraction(1, 1000)


class Finding(Record):
    """One or two mistakes that give exactly the answer."""

    json_fields: ClassVar[tuple[str, ...]] = ("mistakes", "sentences", "number", "bits")

    mistakes: tuple[str, ...]
    sentences: tuple[str, ...]
    number: int | None  # None: not whole, as of GB that should be GiB
    bits: float
    wrong: Account | None = None  # whose number it is


class Checked(Report):
    """An answer, whether it is right, and the mistakes that give its number, most likely first."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "question=exercise.id",
        "answer=given",
        "right",
        "verdict",
        "findings",
    )

    exercise: Exercise
    given: str
    right: bool
    verdict: str  # one line
    findings: tuple[Finding, ...] = ()

    @property
    def summary(self) -> str:
        """The verdict, and the most likely mistake."""
        return " ".join(self.lines)

    @property
    def headline(self) -> str:
        """The verdict."""
        return self.verdict

    @property
    def lines(self) -> tuple[str, ...]:
        """The verdict, and the sentences of the most likely mistakes."""
        sentences = self.findings[0].sentences if self.findings else ()
        return (self.verdict, *(f"{x[0].upper()}{x[1:]}." for x in sentences))

    def tables(self) -> Iterable[Part]:
        """The sentences, and the other mistakes that give the same number."""
        yield from map(Text, self.lines[1:])
        for other in self.findings[1:3]:
            yield Text(f"Or: {'; and '.join(other.sentences)}.", "dim")

    @property
    def entries(self) -> Sequence[Finding]:
        """The mistakes that give the number."""
        return self.findings

    def __bool__(self) -> bool:
        return self.right


def check_answer(exercise: Exercise, text: str) -> Checked:
    """Check an answer, and say what went wrong; what is no number is wrong, too."""
    try:
        answer = exercise.parse(text)
    except NotANumber as error:
        verdict = f"Not a number: {error}. Hint: {error.hint}."
        return Checked(exercise=exercise, given=str(text), right=False, verdict=verdict)
    number = int(exercise.answer)
    shown = f"{number:,}".replace("-", "−")
    elsewhere = _elsewhere(exercise, answer)
    if (
        answer.value == number
        and elsewhere is not None
        and elsewhere != _number_at(exercise.account, exercise.study.other_values)
    ):
        return Checked(
            exercise=exercise,
            given=answer.text,
            right=False,
            verdict=f"Not right: {_chance(exercise, answer)}.",
        )
    if answer.value == number:
        return Checked(exercise=exercise, given=answer.text, right=True, verdict="Right.")
    if answer.fits(number) and not answer.is_coarse:
        verdict = f"Right, rounded; exactly {shown}."
        return Checked(exercise=exercise, given=answer.text, right=True, verdict=verdict)
    if answer.fits(number):
        verdict = "Too coarse: many numbers round to one digit. Give two or more."
        return Checked(exercise=exercise, given=answer.text, right=False, verdict=verdict)
    found = find_mistakes(exercise, answer)
    if elsewhere is not None:  # a formula has the mistake, not its number by chance
        others = exercise.study.other_values
        found = [x for x in found if x.wrong is None or _number_at(x.wrong, others) == elsewhere]
    findings = tuple(found)
    return Checked(
        exercise=exercise,
        given=answer.text,
        right=False,
        verdict=_verdict(findings) or _near(number, answer) or "Not right.",
        findings=findings,
    )


def _elsewhere(exercise: Exercise, answer: Answer) -> Fraction | None:
    """Return the number of a formula at other values of its letters; None if these change
    nothing.
    """
    if not names_letters(answer.text, exercise.letters):
        return None
    found = _typed_at(exercise, answer, exercise.study.other_values)
    return None if found == answer.value else found


def _typed_at(exercise: Exercise, answer: Answer, values: Mapping[str, int]) -> Fraction | None:
    """Return the number of an answer at other values of the model's letters; None if it is none
    there, as a quotient by zero.
    """
    letters = {
        x: n if x in exercise.given else values.get(x, n) for x, n in exercise.letters.items()
    }
    try:
        return parse_answer(answer.text, letters, exercise.unit).value
    except NotANumber:
        return None


def _number_at(account: Account, values: Mapping[str, int]) -> Fraction:
    """Return the sum of an account at other values of its letters."""
    return account.scale * int(account.value.with_letters(values))


def _chance(exercise: Exercise, answer: Answer) -> str:
    """Return why a formula has the right number although it is another one."""
    letters = exercise.letters
    right = exercise.answer.letters.keys() - exercise.given.keys()

    named = {
        x for x, n in letters.items() if _typed_at(exercise, answer, {x: n + 1}) != answer.value
    }
    same = [
        f"{x} = {y}"
        for x in sorted(named - right)
        for y in right - named
        if letters[x] == letters[y]
    ]
    because = f" because {same[0]} here" if same else " for these sizes"
    return f"the number is right, but only{because}; with other sizes the formula gives another one"


def _verdict(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    return "Not right: two mistakes." if len(findings[0].mistakes) > 1 else "Not right."


def _near(number: int, answer: Answer) -> str:
    """Return what is wrong with a number of the right size."""
    off_by = abs(answer.value - number)
    if answer.is_rounded and off_by <= 3 * (answer.high - answer.value) and answer.digits > 1:
        return "Nearly: the last digit is cut or rounded wrongly."
    if not answer.is_rounded and off_by < abs(number) * _UNITS_OFF:
        off = f"{int(answer.value - number):+,}".replace("-", "−")
        return (
            f"Nearly: off by {off}. A number in full is taken exactly; "
            "write a rounded one with a unit, like 8.03B."
        )
    return ""


def find_mistakes(exercise: Exercise, answer: Answer) -> Sequence[Finding]:
    """Return the mistakes, alone or two together, that give exactly this answer, most likely
    first.
    """
    study, account = exercise.study, exercise.account
    singles = wrong_accounts(exercise)
    found = [
        _finding(study, (mistake,), wrong)
        for mistake, wrong in singles
        if answer.could_mean(wrong.number)
    ]
    if not found and (not answer.is_rounded or answer.digits >= _DIGITS_OF_PAIRS):
        found = [
            _finding(study, pair, wrong)
            for pair, wrong in two_mistakes(exercise, singles)
            if answer.could_mean(wrong.number)
        ]
    if not found:
        terms = _terms_alone(account)
        found = [x for x in terms if x.number is not None and answer.could_mean(x.number)]
    found += other_models(exercise, answer)
    return sorted(found, key=lambda x: x.bits)[:_MOST_FINDINGS]


def other_models(exercise: Exercise, answer: Answer) -> list[Finding]:
    """Return the other models whose total this is, if the question asks for a total."""
    if exercise.kind != "weights" or (answer.is_rounded and answer.digits < _DIGITS_OF_PAIRS):
        return []
    study = exercise.study
    if exercise.account.number != study.weights().number:
        return []
    others = [x for x in presets() if answer.could_mean(x.parameters) and x.name != study.name]
    if not others:
        return []
    best = max(others, key=lambda x: len(x.ids) + len(x.aliases))  # the most widely known
    return [
        Finding(
            mistakes=("another model",),
            sentences=(f"this is the total of {best.name}; the question is about {study.name}",),
            number=int(answer.value),
            bits=1.5,
        )
    ]


def _finding(study: Study, mistakes: Sequence[Mistake], wrong: Account) -> Finding:
    return Finding(
        mistakes=tuple(x.name for x in mistakes),
        sentences=tuple(x.explain(study) for x in mistakes),
        number=int(wrong.number) if wrong.number.denominator == 1 else None,
        bits=sum(x.bits for x in mistakes) + _PAIR_BITS * (len(mistakes) - 1),
        wrong=wrong,
    )


def wrong_accounts(exercise: Exercise) -> Sequence[tuple[Mistake, Account]]:
    """Return each mistake that changes the answer, with the account that it makes; an exercise
    keeps them.
    """
    kept: Sequence[tuple[Mistake, Account]] | None = vars(exercise).get("_wrong")
    if kept is None:
        kept = vars(exercise)["_wrong"] = make_mistakes(exercise, (*exercise.mistakes, *MISTAKES))
    return kept


def make_mistakes(
    exercise: Exercise, mistakes: Iterable[Mistake]
) -> Sequence[tuple[Mistake, Account]]:
    """Return each of these mistakes that changes the answer, with the account that it makes."""
    made = [
        (x, x.wrong(exercise.study, exercise.account)) for x in mistakes if exercise.kind in x.kinds
    ]
    return [(x, wrong) for x, wrong in made if wrong is not None]


def two_mistakes(
    exercise: Exercise, singles: Sequence[tuple[Mistake, Account]]
) -> Iterator[tuple[tuple[Mistake, Mistake], Account]]:
    """Yield two mistakes made one after the other, where the second one still changes the
    number, and the two are neither right nor one of them alone.
    """
    together = [(x, y) for x, y in singles if not x.alone]
    right = exercise.account.number
    alone = {y.number for _, y in singles}
    seen: set[tuple[frozenset[str], Fraction | int]] = set()
    for first, changed in together:
        for second, _ in together:
            if second is first:
                continue
            wrong = second.wrong(exercise.study, changed)
            if wrong is None or wrong.number == right or wrong.number in alone:
                continue
            key = (frozenset((first.name, second.name)), wrong.number)
            if key not in seen:
                seen.add(key)
                yield (first, second), wrong


def _terms_alone(account: Account) -> Iterator[Finding]:
    """Yield each term as if it were all, or left out: parts of a sum that no mistake names."""
    products = [x for x in account.products if x.number]
    if len(products) < 2:
        return
    whole = int(account.number)
    for x in products:
        name, value = term_name(x), x.number
        others = tuple(y for y in account.products if y is not x)
        yield Finding(
            mistakes=(f"{name} alone",),
            sentences=(f"this is {name} alone: {value:,} of {whole:,}",),
            number=value,
            bits=4.0,
            wrong=Account(products=(x,)),
        )
        yield Finding(
            mistakes=(f"{name} forgotten",),
            sentences=(f"{name} is missing: {value:,}",),
            number=whole - value,
            bits=4.0,
            wrong=Account(products=others),
        )
        yield Finding(
            mistakes=(f"{name} twice",),
            sentences=(f"{name} is counted twice: {value:,}",),
            number=whole + value,
            bits=5.0,
            wrong=Account(products=(*account.products, x)),
        )


def term_name(x: Product) -> str:
    """Return the name of a term as it is spoken of."""
    return spoken_path(x.path)


def spoken_path(path: str) -> str:
    """Return the path of a weight as it is spoken of."""
    name = path.removesuffix(".weight")
    words = {
        "embed": "the embedding",
        "head": "the output head",
        "norm": "the final norm",
        "positions": "the table of positions",
    }
    if name in words:
        return words[name]
    return name.replace(".{e}", "").removeprefix("attn.").removeprefix("mlp.").replace(".", " ")
