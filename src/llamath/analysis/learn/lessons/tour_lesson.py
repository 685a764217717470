"""The lesson that follows one token: the stops of the tour, and what each adds to the count."""

from __future__ import annotations

from collections.abc import Iterator

from ..exercise import Exercise
from ..lesson import Asker, Lesson, instead
from ..study import ModelStudy
from ..tour.stop_questions import stop_exercises
from ..tour.tour import tour_of


def _needs_pass(study: ModelStudy) -> str:
    return "" if study.graph is not None else "its forward pass is not known"


def _text(study: ModelStudy) -> Iterator[str]:
    for i, x in enumerate(tour_of(study.model.text, code=False).stops, 1):
        formula = f" {x.formula}." if x.formula else ""
        yield f"{i}. {x.title}. {x.what}{formula} {x.why} It {x.sum}; so far {x.so_far:,}."


def _exercises(study: ModelStudy) -> Iterator[Exercise]:
    asker, tour = Asker("token", study), tour_of(study.model.text, code=False)
    for of_stop in stop_exercises(tour).values():
        yield from (x for x in of_stop if x.kind == "weights")
    heads, scores = study.heads, next((x for x in tour.stops if x.name == "scores"), None)
    if scores is not None and heads is not None:
        yield asker.ask(
            "scores",
            "How many parameters do the scores and the softmax add, without attention sinks?",
            0,
            hint="what is multiplied there was made by matrices that are counted already",
            mistakes=(
                instead(
                    "a weight for each head", int(heads), "heads share out what q, k and v make"
                ),
            ),
            why="q, k and v meet without a weight: a longer text needs no parameter.",
        )


TOUR_LESSON = Lesson(
    name="token",
    title="Follow one token",
    model="llama-3-8b",
    lacks=_needs_pass,
    explain=_text,
    exercises=_exercises,
)
