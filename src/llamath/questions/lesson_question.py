"""The question about a lesson: which one, about which model, with how many questions."""

from __future__ import annotations

from typing import Any, ClassVar

from .settings import Question, ask
from .shared_fields import MODEL_NAME
from .value_kinds import integer


class LessonQuestion(Question):
    """Return a lesson about a model, with questions whose answers are numbers of its tree; it
    iterates over them, and `check` tells what is wrong with an answer.

    Without a number and a seed, the questions are those that `llamath learn` asks, in order.
    """

    function: ClassVar[str] = "lesson"
    report: ClassVar[str] = "Worksheet"
    models: ClassVar[tuple[str, ...]] = ("name",)
    loader: ClassVar[str] = ""

    model: Any = ask(MODEL_NAME, default=None, help="Model to ask about, if not the lesson's own.")
    questions: int | None = ask(
        integer(most=500), default=None, help="Number of questions, chosen at random."
    )
    seed: int | None = ask(
        integer(0), default=None, help="Choose the same questions again: the same number."
    )
