"""`Worksheet`: a lesson about a model with some of its questions, and `LessonList`, the course."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...loading import Source
from ...render.report import Report
from ...render.tables import Column, Part, Table, Text, heading
from ...utils.errors import LlamathError, nearest, safe
from .course import LESSONS, exercises_of, find_lesson, study_of
from .exercise import Exercise
from .learner_progress import LearnerProgress
from .lesson import Lesson
from .study import ModelStudy

SHEET_SCHEMA = "llamath-worksheet-1"


class Worksheet(Report):
    """A lesson about one model: what it explains, and its questions, which it iterates over and
    gives by their number or their id.
    """

    lesson: Lesson
    study: ModelStudy
    exercises: tuple[Exercise, ...]
    seed: int | None  # of a random choice; None: the questions of the lesson, in order
    solutions: bool = False
    notes: tuple[str, ...] = ()
    asked: str = ""  # the model as it was named

    @property
    def name(self) -> str:
        """The name of the lesson."""
        return self.lesson.name

    @property
    def title(self) -> str:
        """The title, and the model."""
        return f"{self.lesson.title}: {self.study.name}"

    @property
    def slug(self) -> str:
        """The preset of the model; empty if it is none."""
        preset = self.study.model.preset
        return preset.slug if preset is not None else ""

    @property
    def explanation(self) -> tuple[str, ...]:
        """The explanation, in paragraphs."""
        return tuple(self.lesson.explain(self.study))

    @property
    def letters(self) -> Mapping[str, int]:
        """The letters that answers may use, with their values."""
        found = dict(self.study.letters)
        for x in self.exercises:
            found |= {name: n for name, n in x.given.items() if name not in ("T", "B")}
        return found

    @property
    def summary(self) -> str:
        """The title and the number of questions."""
        return f"{self.title}, {len(self.exercises)} questions"

    @property
    def headline(self) -> str:
        """The title."""
        return self.title

    @property
    def entries(self) -> Sequence[Exercise]:
        """The questions."""
        return self.exercises

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, str):
            return self.exercises[place]
        found = {x.id: x for x in self.exercises}
        if place not in found:
            near = nearest(place, found)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(found)}"
            raise LlamathError(f"no question {safe(repr(place), 60)} in this sheet", hint=hint)
        return found[place]

    def to_json(self) -> dict[str, Any]:
        """Return the sheet as a course system takes it; answers are in it with `solutions`."""
        return {
            "schema": SHEET_SCHEMA,
            "lesson": self.name,
            "title": self.lesson.title,
            "model": self.study.name,
            "preset": self.slug or None,
            "seed": self.seed,
            "explanation": list(self.explanation),
            "questions": [x.to_json(solutions=self.solutions) for x in self.exercises],
            "notes": list(self.notes),
        }

    def tables(self) -> Iterable[Part]:
        """The explanation and the questions, with the solutions if they are asked for."""
        yield from map(Text, self.explanation)
        for i, x in enumerate(self.exercises, 1):
            yield heading(f"{i}. {x.id}")
            yield Text(x.text)
            if self.solutions:
                yield from (Text(line, "dim", indent="  ") for line in x.solution)
        columns: tuple[Column, ...] = (
            Column("question"),
            Column("text"),
            Column("unit"),
            Column("hint"),
        )
        rows: list[tuple[Any, ...]] = [(x.id, x.text, x.unit, x.hint) for x in self.exercises]
        if self.solutions:
            columns = (*columns, Column("answer", "count"))
            rows = [(*row, int(x.answer)) for row, x in zip(rows, self.exercises, strict=True)]
        yield Table(columns=columns, rows=tuple(rows), most=0)


def make_worksheet(
    name: str,
    model: Source | None = None,
    questions: int | None = None,
    seed: int | None = None,
    *,
    solutions: bool = False,
) -> Worksheet:
    """Return a lesson with its own questions, or with a number of them chosen at random; the same
    seed chooses the same ones.
    """
    lesson = find_lesson(name)
    study = study_of(lesson, model)
    every = exercises_of(lesson, study)
    notes: tuple[str, ...] = ()
    if questions is None and seed is None:
        chosen = tuple(x for x in every if x.core)
    else:
        from random import Random

        wanted = len(every) if questions is None else questions
        if wanted > len(every):
            notes = (f"the lesson has {len(every)} questions about {study.name}, not {wanted:,}",)
        places = Random(seed or 0).sample(range(len(every)), min(wanted, len(every)))
        chosen = tuple(every[i] for i in sorted(places))
    return Worksheet(
        lesson=lesson,
        study=study,
        exercises=chosen,
        seed=None if questions is None and seed is None else seed or 0,
        solutions=solutions,
        notes=notes,
        asked=model if isinstance(model, str) else "",
    )


def list_lessons() -> LessonList:
    """Return the lessons, with what is kept of the learner's progress."""
    progress = LearnerProgress()
    return LessonList(done={x.name: progress.count(x.name) for x in LESSONS})


class LessonList(Report):
    """The lessons in order, each with what the learner has done."""

    done: Mapping[str, int]  # lesson → questions that the learner has answered

    @property
    def entries(self) -> Sequence[Lesson]:
        """The lessons."""
        return LESSONS

    @property
    def summary(self) -> str:
        """The number of lessons."""
        return f"{len(LESSONS)} lessons, from {LESSONS[0].name} to {LESSONS[-1].name}"

    def to_json(self) -> dict[str, Any]:
        """Return the lessons."""
        return {
            "lessons": [
                {
                    "name": x.name,
                    "title": x.title,
                    "model": x.model,
                    "answered": self.done.get(x.name, 0),
                }
                for x in LESSONS
            ]
        }

    def tables(self) -> Iterator[Part]:
        """A row for each lesson."""
        yield Table(
            columns=(
                Column("lesson"),
                Column("about", key="title"),
                Column("model", drop=1),
                Column("answered", "right", drop=2),
            ),
            rows=tuple((x.name, x.title, x.model, self.done.get(x.name) or "") for x in LESSONS),
        )
