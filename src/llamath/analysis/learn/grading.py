"""`grade_answers`: a file with answers to a worksheet, checked question by question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...catalog import presets
from ...loading import Source
from ...render.report import Report
from ...render.tables import Column, Part, Row, Table
from ...utils.errors import Argument, Call, LlamathError, Name, safe
from ...utils.strict_json import parse_json
from .course import exercises_of, find_lesson, study_of
from .diagnosis import Checked, check_answer
from .exercise import Exercise

ANSWERS_SCHEMA = "llamath-answers-1"
MAX_BYTES = 2**20
"""The largest file of answers."""
_MAX_ANSWERS = 500
_FORM = (
    f'like {{"schema": "{ANSWERS_SCHEMA}", "lesson": "matrix", "preset": "llama-3-8b", '
    '"answers": {"matrix/attn.q": "16,777,216"}}'
)


class Grades(Report):
    """The answers of a file; it is true if all are right."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "lesson",
        "model",
        "right",
        "of=total",
        "answers=checked",
    )

    lesson: str
    model: str
    checked: tuple[Checked, ...]

    @property
    def right(self) -> int:
        """The number of right answers."""
        return sum(x.right for x in self.checked)

    @property
    def total(self) -> int:
        """The number of answers."""
        return len(self.checked)

    @property
    def summary(self) -> str:
        """How many are right."""
        return f"{self.lesson}, {self.model}: {self.right} of {self.total} right"

    @property
    def entries(self) -> tuple[Checked, ...]:
        """The checked answers."""
        return self.checked

    def __bool__(self) -> bool:
        return self.right == self.total

    def tables(self) -> Iterable[Part]:
        """A row for each answer, and the sentence about a wrong one."""
        yield Table(
            columns=(Column("question"), Column("answer"), Column("", key="verdict", wrap=True)),
            rows=tuple(self._rows()),
        )

    def _rows(self) -> Iterator[Row]:
        for x in self.checked:
            yield Row((x.exercise.id, safe(x.given, 40), " ".join(x.lines)))


def grade_answers(content: bytes, name: str, model: Source | None = None) -> Grades:
    """Grade the answers in a JSON file; `model` is needed where the sheet was made of no preset,
    since a file of answers opens no other file.
    """
    document = _read(content, name)
    lesson = find_lesson(document["lesson"])
    source = model
    if source is None:
        slug = document.get("preset")
        if slug is not None and slug not in {x.slug for x in presets()}:
            raise LlamathError(
                f"{safe(name)}: {safe(repr(slug), 60)} is no preset",
                hint=f"name it: {Argument('model', Name('model'))}",
            )
        source = slug
    study = study_of(lesson, source)
    known = {x.id: x for x in exercises_of(lesson, study)}
    checked = [
        check_answer(_known(known, id_, name), text) for id_, text in document["answers"].items()
    ]
    return Grades(lesson=lesson.name, model=study.name, checked=tuple(checked))


def _known(known: Mapping[str, Exercise], id_: str, name: str) -> Exercise:
    if id_ not in known:
        lesson = next(iter(known)).partition("/")[0]
        raise LlamathError(
            f"{safe(name)}: no question {safe(repr(id_), 60)} in the lesson about this model",
            hint=f"{Call('lesson', lesson)} has the questions with their ids",
        )
    return known[id_]


def _read(content: bytes, name: str) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise LlamathError(f"{safe(name)} has more than {MAX_BYTES:,} bytes", hint=_FORM)
    try:
        document = parse_json(content, safe(name))
    except LlamathError as error:
        raise LlamathError(str(error), hint=_FORM) from None
    schema = document.get("schema")
    if schema != ANSWERS_SCHEMA:
        found = "there is none" if schema is None else f"found {safe(repr(schema), 60)}"
        raise LlamathError(
            f"{safe(name)}: expected the schema {ANSWERS_SCHEMA!r}, {found}",
            hint="make the sheet anew with this version",
        )
    answers = document.get("answers")
    if not isinstance(answers, dict) or not answers or len(answers) > _MAX_ANSWERS:
        raise LlamathError(
            f"{safe(name)}: expected 1 to {_MAX_ANSWERS} answers by their question's id", hint=_FORM
        )
    if not isinstance(document.get("lesson"), str):
        raise LlamathError(f"{safe(name)}: expected the name of a lesson", hint=_FORM)
    if not isinstance(document.get("preset"), str | None):
        raise LlamathError(f"{safe(name)}: expected the name of a preset", hint=_FORM)
    return document | {"answers": {x: _text(y, x, name) for x, y in answers.items()}}


def _text(value: object, id_: str, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise LlamathError(
            f"{safe(name)}: {safe(repr(id_), 60)}: expected text or a whole number", hint=_FORM
        )
    return str(value)
