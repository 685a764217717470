"""The course: every lesson in order, and the exercises of one lesson about one model."""

from __future__ import annotations

from ...loading import Source, load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError, nearest, safe
from .exercise import Exercise
from .lesson import Lesson
from .lessons.quiz_lesson import QUIZ_LESSON
from .lessons.size_lessons import SIZE_LESSONS
from .lessons.special_lessons import SPECIAL_LESSONS
from .lessons.tour_lesson import TOUR_LESSON
from .lessons.weight_lessons import WEIGHT_LESSONS
from .study import ModelStudy

LESSONS: tuple[Lesson, ...] = (
    *WEIGHT_LESSONS,
    *SIZE_LESSONS,
    *SPECIAL_LESSONS,
    TOUR_LESSON,
    QUIZ_LESSON,
)


class NoSuchLesson(LlamathError):
    """A lesson that does not exist, or not for this model."""


def find_lesson(name: str) -> Lesson:
    """Return a lesson by its name."""
    names = [x.name for x in LESSONS]
    if name not in names:
        near = nearest(name, names)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise NoSuchLesson(f"there is no lesson {safe(repr(name), 40)}", hint=hint)
    return LESSONS[names.index(name)]


def study_of(lesson: Lesson, model: Source | None) -> ModelStudy:
    """Return what a lesson reads from a model, or from its own; a model without what the lesson
    is about is an error.
    """
    loaded = model if isinstance(model, FamilyModel) else load_family(model or lesson.model)
    study = ModelStudy.of(loaded)
    if problem := lesson.lacks(study):
        others = ", ".join(x.name for x in LESSONS if not x.lacks(study))
        raise NoSuchLesson(
            f"{safe(study.name, 60)} has no lesson {lesson.name!r}: {problem}",
            hint=f"it has {others}",
        )
    return study


def exercises_of(lesson: Lesson, study: ModelStudy) -> tuple[Exercise, ...]:
    """Return every exercise of a lesson about a model, each once."""
    found: dict[str, Exercise] = {}
    for x in lesson.exercises(study):
        found.setdefault(x.id, x)
    return tuple(found.values())
